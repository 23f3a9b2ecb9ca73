//! NVFP4 on the host: a matrix of e2m1 codes with an e4m3 scale for every 16 of them and one f32 scale for all.
//!
//! ```text
//! value[row, col] = e2m1(code[row, col]) · e4m3(scale[row, col / 16]) · tensor scale
//! ```
//!
//! Quantisation is the one that the published checkpoints use (NVIDIA ModelOpt, compressed-tensors, Transformer
//! Engine): the tensor scale maps the tensor's largest magnitude to 6·448, the block scale maps the block's largest
//! magnitude to 6, codes and scales are rounded to nearest with ties to even.

use super::e2m1;
use super::e4m3;
use super::{BLOCK, ScaleLayout};
use crate::error::{Error, Result};

/// A host matrix in NVFP4: `rows` × `k`, row-major, `k` a multiple of 16.
///
/// * `codes`: `[rows, k/2]` bytes, element 2j of a row in the low nibble of byte j and 2j+1 in the high one (the
///   packing of PyTorch's `float4_e2m1fn_x2` and of every NVFP4 checkpoint).
/// * `scales`: one e4m3fn byte per row and 16 columns, in a [`ScaleLayout`]. The sign bit of a scale counts here;
///   hardware with unsigned scales (PTX `.ue4m3`) has none, and quantisation never sets it.
/// * `tensor_scale`: an f32 *multiplier* (ModelOpt's `weight_scale_2`, the reciprocal of compressed-tensors'
///   `weight_global_scale`).
///
/// ```
/// use warpsmith::format::Nvfp4Tensor;
/// let values: Vec<f32> = (0..64).map(|i| i as f32 - 20.0).collect();
/// let tensor = Nvfp4Tensor::quantise(2, 32, &values)?;
/// assert_eq!(tensor.codes().len(), 2 * 16);
/// assert!((tensor.dequantise()[63] - 43.0).abs() < 1e-4, "the largest magnitude is kept");
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Nvfp4Tensor {
    rows: usize,
    k: usize,
    codes: Vec<u8>,
    scales: Vec<u8>,
    layout: ScaleLayout,
    tensor_scale: f32,
}

impl Nvfp4Tensor {
    /// Takes codes and scales as they are.
    ///
    /// # Errors
    /// [`Error::is_data`] if `k` is no multiple of 16, a length does not fit, a scale is NaN (its row and block are
    /// named; padding is not looked at), or the tensor scale is not finite.
    pub fn new(
        rows: usize,
        k: usize,
        codes: Vec<u8>,
        scales: Vec<u8>,
        layout: ScaleLayout,
        tensor_scale: f32,
    ) -> Result<Self> {
        layout.check(&scales, rows, k)?;
        let needed = rows.saturating_mul(k / 2);
        if codes.len() != needed {
            let found = codes.len();
            return Err(Error::data(format!("{rows}×{k} has {needed} bytes of e2m1 codes, found {found}")));
        }
        if !tensor_scale.is_finite() {
            return Err(Error::data(format!("the tensor scale is {tensor_scale}, it must be finite")));
        }
        let tensor = Self { rows, k, codes, scales, layout, tensor_scale };
        match tensor.nan_scale() {
            Some((row, block)) => Err(Error::data(format!("the scale of row {row}, block {block} is NaN"))),
            None => Ok(tensor),
        }
    }

    /// The nearest NVFP4 tensor of f32, f16 or bf16 `values`, `[rows, k]` row-major, with linear scales.
    ///
    /// With amax the largest magnitude: tensor scale = amax / (6·448), block scale = e4m3(amax of the block / 6 / tensor
    /// scale), code = e2m1(value / (block scale · tensor scale)), each step rounded to f32 (docs/formats.md). Every element is within half a step of its code as
    /// long as its block scale is at least 2⁻⁶, that is, for blocks that are not some 28 000 times smaller than the
    /// tensor, and the product of both scales is normal; below that the scale itself has few bits, and a block's largest elements may saturate. All-zero blocks
    /// get scale 1, other blocks at least 2⁻⁹; an all-zero tensor gets tensor scale 1.
    ///
    /// # Errors
    /// [`Error::is_data`] if `k` is no multiple of 16, the length is not `rows · k`, or a value is NaN or infinite (its
    /// row and column are named).
    pub fn quantise<T: Copy>(rows: usize, k: usize, values: &[T]) -> Result<Self>
    where
        f32: From<T>,
    {
        check_values(rows, k, values)?;
        let tensor_scale = tensor_scale(amax(values));
        let mut codes = Vec::with_capacity(values.len() / 2);
        let mut scales = Vec::with_capacity(values.len() / BLOCK);
        for block in values.chunks_exact(BLOCK) {
            let scale = block_scale(amax(block), tensor_scale);
            let step = e4m3::decode(scale) * tensor_scale;
            let code = |value: T| e2m1::encode(f32::from(value) / step).unwrap_or_default();
            codes.extend(block.chunks_exact(2).map(|pair| code(pair[0]) | code(pair[1]) << 4));
            scales.push(scale);
        }
        Self::new(rows, k, codes, scales, ScaleLayout::Linear, tensor_scale)
    }

    /// The number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns, a multiple of 16.
    #[must_use]
    pub fn k(&self) -> usize {
        self.k
    }

    /// The e2m1 codes, `[rows, k/2]` bytes, low nibble = even column.
    #[must_use]
    pub fn codes(&self) -> &[u8] {
        &self.codes
    }

    /// The e4m3 block scales, in [`Nvfp4Tensor::layout`].
    #[must_use]
    pub fn scales(&self) -> &[u8] {
        &self.scales
    }

    /// How the block scales lie.
    #[must_use]
    pub fn layout(&self) -> ScaleLayout {
        self.layout
    }

    /// The multiplier of all values. A kernel takes it as part of α.
    #[must_use]
    pub fn tensor_scale(&self) -> f32 {
        self.tensor_scale
    }

    /// The e2m1 code of an element, 0 to 15.
    ///
    /// # Panics
    /// If `row` or `col` is out of range.
    #[must_use]
    pub fn code(&self, row: usize, col: usize) -> u8 {
        assert!(col < self.k, "column {col} of {}", self.k);
        self.codes[row * (self.k / 2) + col / 2] >> (col % 2 * 4) & 0xF
    }

    /// The e4m3 scale of 16 elements, as its byte.
    ///
    /// # Panics
    /// If `row` or `block` is out of range.
    #[must_use]
    pub fn scale(&self, row: usize, block: usize) -> u8 {
        assert!(row < self.rows && block < self.k / BLOCK, "block {block} of row {row} in {}×{}", self.rows, self.k);
        self.scales[self.layout.offset(self.k, row, block)]
    }

    /// code × block scale, `[rows, k]` row-major, **without** the tensor scale: exact in f32 (and in f16 and bf16),
    /// and what a kernel multiplies.
    #[must_use]
    pub fn dequantise_unscaled(&self) -> Vec<f32> {
        let mut values = Vec::with_capacity(self.rows * self.k);
        for (row, block) in self.blocks() {
            let scale = e4m3::decode(self.scale(row, block));
            let columns = block * BLOCK..(block + 1) * BLOCK;
            values.extend(columns.map(|col| e2m1::decode(self.code(row, col)) * scale));
        }
        values
    }

    /// The values the tensor stands for, `[rows, k]` row-major: code × block scale × tensor scale, rounded to f32 once.
    #[must_use]
    pub fn dequantise(&self) -> Vec<f32> {
        let mut values = self.dequantise_unscaled();
        values.iter_mut().for_each(|value| *value *= self.tensor_scale);
        values
    }

    /// The same tensor with its scales in another layout; `padding` fills what that layout pads.
    ///
    /// # Errors
    /// None in practice: the constructors have checked what the conversion checks.
    pub fn with_layout(self, layout: ScaleLayout, padding: u8) -> Result<Self> {
        let scales = self.layout.convert(&self.scales, self.rows, self.k, layout, padding)?;
        Ok(Self { scales, layout, ..self })
    }

    fn nan_scale(&self) -> Option<(usize, usize)> {
        self.blocks().find(|&(row, block)| e4m3::is_nan(self.scale(row, block)))
    }

    /// Every block, by its row and its place there. Of rows without any, no bytes bound how many there are.
    fn blocks(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let blocks = self.k / BLOCK;
        let rows = if blocks == 0 { 0 } else { self.rows };
        (0..rows).flat_map(move |row| (0..blocks).map(move |block| (row, block)))
    }
}

fn check_values<T: Copy>(rows: usize, k: usize, values: &[T]) -> Result<()>
where
    f32: From<T>,
{
    if !k.is_multiple_of(BLOCK) {
        return Err(Error::data(format!("k = {k} is not a multiple of the block of {BLOCK}")));
    }
    let needed = rows.saturating_mul(k);
    if values.len() != needed {
        return Err(Error::data(format!("{rows}×{k} has {needed} values, found {}", values.len())));
    }
    match values.iter().position(|&value| !f32::from(value).is_finite()) {
        Some(at) => {
            let (row, col, value) = (at / k, at % k, f32::from(values[at]));
            Err(Error::data(format!("the value at row {row}, column {col} is {value}: NVFP4 cannot hold it")))
        }
        None => Ok(()),
    }
}

/// The largest magnitude.
fn amax<T: Copy>(values: &[T]) -> f32
where
    f32: From<T>,
{
    values.iter().fold(0.0, |largest: f32, &value| largest.max(f32::from(value).abs()))
}

/// amax / (6·448). Kept normal, so that dividing by it neither overflows nor loses digits.
fn tensor_scale(amax: f32) -> f32 {
    if amax == 0.0 { 1.0 } else { (amax / (e2m1::MAX * e4m3::MAX)).max(f32::MIN_POSITIVE) }
}

/// The e4m3 scale of a block. A block that is not all zero keeps at least the smallest scale, as ModelOpt has it: a
/// scale of 0 would make its codes meaningless.
fn block_scale(amax: f32, tensor_scale: f32) -> u8 {
    let scale = if amax == 0.0 { 1.0 } else { (amax / e2m1::MAX / tensor_scale).max(e4m3::MIN_SUBNORMAL) };
    e4m3::encode(scale)
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use proptest::prelude::*;

    use super::*;

    /// Half the distance between the neighbours of a code's magnitude, on the wider side; saturation counts as a step
    /// of 2, that of 4 to 6.
    fn half_step(value: f64) -> f64 {
        match value.abs() {
            x if x < 2.0 => 0.25,
            x if x < 4.0 => 0.5,
            _ => 1.0,
        }
    }

    fn values(range: std::ops::Range<f32>) -> impl Strategy<Value = (usize, usize, Vec<f32>)> {
        (1usize..5, 1usize..5).prop_flat_map(move |(rows, blocks)| {
            // Rows of very different magnitude, so that block scales differ.
            let element = (range.clone(), -6i32..6).prop_map(|(x, e)| x * 2f32.powi(e));
            (Just(rows), Just(blocks * BLOCK), proptest::collection::vec(element, rows * blocks * BLOCK))
        })
    }

    #[test]
    fn nibbles_and_scales_are_where_they_should_be() {
        let mut codes = vec![0; 2 * 16];
        codes[16 + 8] = 0x52; // row 1, columns 16 (code 2 = 1.0) and 17 (code 5 = 3.0)
        let scales = vec![0x38, 0x38, 0x38, 0x40]; // row 1, block 1: 2.0
        let tensor = Nvfp4Tensor::new(2, 32, codes, scales, ScaleLayout::Linear, 0.5).unwrap();
        let unscaled = tensor.dequantise_unscaled();
        assert_eq!((unscaled[32 + 16], unscaled[32 + 17], unscaled[32 + 18]), (2.0, 6.0, 0.0));
        assert_eq!(tensor.dequantise()[32 + 17], 3.0);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let new = |codes, scales: Vec<u8>, scale| Nvfp4Tensor::new(2, 32, codes, scales, ScaleLayout::Linear, scale);
        let message = |result: Result<Nvfp4Tensor>| result.unwrap_err().to_string();
        assert_eq!(message(new(vec![0; 32], vec![0, 0, 0x7F, 0], 1.0)), "the scale of row 1, block 0 is NaN");
        assert_eq!(message(new(vec![0; 31], vec![0; 4], 1.0)), "2×32 has 32 bytes of e2m1 codes, found 31");
        assert_eq!(message(new(vec![0; 32], vec![0; 5], 1.0)), "2×32 has 4 bytes of linear scales, found 5");
        assert_eq!(message(new(vec![0; 32], vec![0; 4], f32::NAN)), "the tensor scale is NaN, it must be finite");
        let mut values = [0.0f32; 64];
        values[35] = f32::INFINITY;
        assert!(message(Nvfp4Tensor::quantise(2, 32, &values)).starts_with("the value at row 1, column 3 is inf"));
    }

    /// A product that wraps to 0 is not what an empty list has.
    #[test]
    fn extents_that_cannot_be_counted_are_refused() {
        for layout in [ScaleLayout::Linear, ScaleLayout::Swizzled128x4] {
            for (rows, k) in [(1 << 63, 32), (16, 1 << 63), (1 << 32, 1 << 40), (usize::MAX, 16)] {
                let refused = Nvfp4Tensor::new(rows, k, Vec::new(), Vec::new(), layout, 1.0).unwrap_err();
                assert!(refused.is_data() && refused.to_string().starts_with(&format!("{rows}×{k} has ")), "{refused}");
                assert!(Nvfp4Tensor::quantise::<f32>(rows, k, &[]).unwrap_err().is_data());
                assert!(layout.convert(&[], rows, k, ScaleLayout::Linear, 0).unwrap_err().is_data());
            }
            let empty = Nvfp4Tensor::new(usize::MAX, 0, Vec::new(), Vec::new(), layout, 1.0).unwrap();
            assert!(empty.with_layout(ScaleLayout::Swizzled128x4, 0).unwrap().dequantise().is_empty());
        }
    }

    #[test]
    fn nan_in_the_padding_is_nobody_s_business() {
        let scales = ScaleLayout::Linear.convert(&[0x38; 2], 1, 32, ScaleLayout::Swizzled128x4, 0x7F).unwrap();
        assert!(Nvfp4Tensor::new(1, 32, vec![0; 16], scales, ScaleLayout::Swizzled128x4, 1.0).is_ok());
    }

    #[test]
    fn zeros_tiny_and_huge_tensors() {
        let zero = Nvfp4Tensor::quantise(1, 32, &[0.0f32; 32]).unwrap();
        assert_eq!((zero.tensor_scale(), zero.scales()), (1.0, [0x38, 0x38].as_slice()));
        assert!(zero.dequantise().iter().all(|&value| value == 0.0));
        let largest = |amax: f32| {
            let values: Vec<f32> = (0..16).map(|i| if i == 3 { -amax } else { 0.0 }).collect();
            -Nvfp4Tensor::quantise(1, 16, &values).unwrap().dequantise()[3]
        };
        for amax in [1e-30, 1.0, f32::MAX] {
            assert!((largest(amax) / amax - 1.0).abs() < 1e-6, "{amax}");
        }
        // Here the tensor scale has reached its floor, and block scale and code hold what they can.
        assert!((largest(f32::MIN_POSITIVE) / f32::MIN_POSITIVE - 1.0).abs() < 0.0625);
        assert_eq!(largest(f32::from_bits(1)), 0.0);
        assert!(Nvfp4Tensor::quantise::<f32>(0, 16, &[]).is_ok());
    }

    #[test]
    fn half_precision_values_quantise_as_their_f32_values() {
        let halves: Vec<f16> = (0..32).map(|i| f16::from_f32(i as f32 * 0.3 - 4.0)).collect();
        let brains: Vec<bf16> = (0..32).map(|i| bf16::from_f32(i as f32 * 0.3 - 4.0)).collect();
        let wide = |values: Vec<f32>| Nvfp4Tensor::quantise(2, 16, &values).unwrap();
        let tensor = Nvfp4Tensor::quantise(2, 16, &halves).unwrap();
        assert_eq!(tensor, wide(halves.iter().map(|x| x.to_f32()).collect()));
        let tensor = Nvfp4Tensor::quantise(2, 16, &brains).unwrap();
        assert_eq!(tensor, wide(brains.iter().map(|x| x.to_f32()).collect()));
    }

    proptest! {
        #[test]
        fn the_error_is_at_most_half_a_step((rows, k, values) in values(-1.0..1.0)) {
            let tensor = Nvfp4Tensor::quantise(rows, k, &values).unwrap();
            let found = tensor.dequantise_unscaled();
            for (at, (&value, &found)) in values.iter().zip(&found).enumerate() {
                let scale = e4m3::decode(tensor.scale(at / k, at % k / BLOCK));
                let step = f64::from(scale) * f64::from(tensor.tensor_scale());
                if scale >= e4m3::MIN_POSITIVE {
                    let error = (f64::from(value) / step - f64::from(found / scale)).abs();
                    prop_assert!(error <= half_step(f64::from(value) / step) + 1e-5, "{value} became {found}");
                }
            }
        }

        #[test]
        fn quantising_again_changes_nothing((rows, k, values) in values(-1.0..1.0)) {
            let once = Nvfp4Tensor::quantise(rows, k, &values).unwrap();
            let twice = Nvfp4Tensor::quantise(rows, k, &once.dequantise()).unwrap();
            // 6·448·(amax/2688) may round to a neighbour of amax; nothing else may move.
            prop_assert!((once.tensor_scale() / twice.tensor_scale() - 1.0).abs() < 1e-6);
            for (x, y) in once.dequantise().into_iter().zip(twice.dequantise()) {
                prop_assert!((x - y).abs() <= x.abs() * 1e-6, "{x} became {y}");
            }
        }

        #[test]
        fn layouts_carry_the_same_values((rows, k, values) in values(-3.0..3.0), padding: u8) {
            let linear = Nvfp4Tensor::quantise(rows, k, &values).unwrap();
            let swizzled = linear.clone().with_layout(ScaleLayout::Swizzled128x4, padding).unwrap();
            prop_assert_eq!(linear.dequantise(), swizzled.dequantise());
            prop_assert_eq!(swizzled.with_layout(ScaleLayout::Linear, 0).unwrap(), linear);
        }
    }
}
