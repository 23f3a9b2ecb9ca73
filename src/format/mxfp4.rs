//! MXFP4 on the host: a matrix of e2m1 codes with an e8m0 scale, a power of two, for every 32 of them.
//!
//! ```text
//! value[row, col] = e2m1(code[row, col]) · 2^(scale[row, col / 32] − 127)
//! ```

use half::{bf16, f16};

use super::{Format, e2m1, e8m0};
use crate::error::{Error, Result};

/// Elements along k that share one scale.
pub const MX_BLOCK: usize = 32;

/// The largest exponent of an e2m1 magnitude: 4 and 6 are 2² times something below 2.
const LARGEST_EXPONENT: i32 = 2;

/// A host matrix in MXFP4: `rows` × `k`, row-major, `k` a multiple of 32.
///
/// * `codes`: `[rows, k/2]` bytes, element 2j of a row in the low nibble of byte j and 2j+1 in the high one.
/// * `scales`: `[rows, k/32]` e8m0 bytes, row-major: 2^(byte − 127), 255 for NaN.
///
/// ```
/// use warpsmith::format::Mxfp4Tensor;
/// let values: Vec<f32> = (0..64).map(|i| i as f32 - 20.0).collect();
/// let tensor = Mxfp4Tensor::quantise(1, 64, &values)?;
/// assert_eq!((tensor.codes().len(), tensor.scales()), (32, &[129, 130][..]), "scales 2² and 2³");
/// assert_eq!(tensor.dequantise()[0], -16.0, "−20 / 4 lies between −4 and −6: ties to even");
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mxfp4Tensor {
    rows: usize,
    k: usize,
    codes: Vec<u8>,
    scales: Vec<u8>,
}

impl Mxfp4Tensor {
    /// Takes codes and scales as they are.
    ///
    /// # Errors
    /// [`Error::is_data`] if `k` is no multiple of 32, a length does not fit, or a scale is NaN (its row and block are named).
    pub fn new(rows: usize, k: usize, codes: Vec<u8>, scales: Vec<u8>) -> Result<Self> {
        check_k(k)?;
        let needed = rows.saturating_mul(k / 2);
        if codes.len() != needed {
            let found = codes.len();
            return Err(Error::data(format!("{rows}×{k} has {needed} bytes of e2m1 codes, found {found}")));
        }
        let blocks = k / MX_BLOCK;
        let needed = rows.saturating_mul(blocks);
        if scales.len() != needed {
            let found = scales.len();
            return Err(Error::data(format!("{rows}×{k} has {needed} bytes of e8m0 scales, found {found}")));
        }
        if let Some(at) = scales.iter().position(|scale| e8m0::is_nan(*scale)) {
            let (row, block) = (at / blocks, at % blocks);
            return Err(Error::data(format!("the scale of row {row}, block {block} is NaN")));
        }
        Ok(Self { rows, k, codes, scales })
    }

    /// The MXFP4 tensor of f32, f16 or bf16 `values`, `[rows, k]` row-major, by the rule of the OCP specification (6.3).
    ///
    /// With amax the largest magnitude of a block: scale = 2^(⌊log₂ amax⌋ − 2), of a block of zeros 1, and 2⁻¹²⁷ at least;
    /// code = e2m1(value / scale), exactly divided and rounded once, at most ±6. So what is above 6 · scale, a quarter of the
    /// last power of two, saturates.
    ///
    /// # Errors
    /// [`Error::is_data`] if `k` is no multiple of 32, the length is not `rows · k`, or a value is NaN or infinite (its row and
    /// column are named).
    pub fn quantise<T: Copy>(rows: usize, k: usize, values: &[T]) -> Result<Self>
    where
        f32: From<T>,
    {
        check_k(k)?;
        let needed = rows.saturating_mul(k);
        if values.len() != needed {
            return Err(Error::data(format!("{rows}×{k} has {needed} values, found {}", values.len())));
        }
        if let Some(at) = values.iter().position(|&value| !f32::from(value).is_finite()) {
            let (row, col, value) = (at / k, at % k, f32::from(values[at]));
            return Err(Error::data(format!("the value at row {row}, column {col} is {value}: MXFP4 cannot hold it")));
        }
        let mut codes = Vec::with_capacity(values.len() / 2);
        let mut scales = Vec::with_capacity(values.len() / MX_BLOCK);
        for block in values.chunks_exact(MX_BLOCK) {
            let amax = block.iter().fold(0.0, |largest: f32, &value| largest.max(f32::from(value).abs()));
            let scale = scale_of(amax);
            // In f64, where the quotient is exact: a power of two, and f32's subnormals are normal there.
            let step = f64::from(e8m0::decode(scale));
            let code = |value: T| e2m1::encode((f64::from(f32::from(value)) / step) as f32).unwrap_or_default();
            codes.extend(block.chunks_exact(2).map(|pair| code(pair[0]) | code(pair[1]) << 4));
            scales.push(scale);
        }
        Self::new(rows, k, codes, scales)
    }

    /// The number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns, a multiple of 32.
    #[must_use]
    pub fn k(&self) -> usize {
        self.k
    }

    /// The e2m1 codes, `[rows, k/2]` bytes, low nibble = even column.
    #[must_use]
    pub fn codes(&self) -> &[u8] {
        &self.codes
    }

    /// The e8m0 block scales, `[rows, k/32]` bytes.
    #[must_use]
    pub fn scales(&self) -> &[u8] {
        &self.scales
    }

    /// The values the tensor stands for, `[rows, k]` row-major, in f32: exact, but for what a scale of 2¹²⁶ or 2¹²⁷ takes
    /// beyond f32's range, which is an infinity.
    #[must_use]
    pub fn dequantise(&self) -> Vec<f32> {
        self.values(Format::F32)
    }

    /// The values that kernels multiply, where they multiply in `compute`: f16 has not all of them (docs/formats.md).
    #[must_use]
    pub fn values(&self, compute: Format) -> Vec<f32> {
        let scale_of = |byte: usize| self.scales[byte / (MX_BLOCK / 2)];
        let pairs = self.codes.iter().enumerate();
        pairs
            .flat_map(|(at, pair)| [pair & 15, pair >> 4].map(|code| mxfp4_value(compute, code, scale_of(at))))
            .collect()
    }
}

/// What a kernel that multiplies in a 16-bit format makes of a code and its scale: the scale rounded to that format, times
/// the code, rounded to it, each time to nearest with ties to even.
///
/// In bf16 (and f32) that is code · 2^(scale − 127), exactly, subnormal numbers included, and an infinity where it is beyond
/// the range: 4 and 6 times 2¹²⁶, 2 to 6 times 2¹²⁷. In f16 it is exact for scales from 2⁻²³ to 2¹³, and the infinity
/// for what is beyond 65504; from 2¹⁶ on the scale is one (so that a code of 0 gives NaN), below 2⁻²⁴ it is 0.
#[must_use]
pub fn mxfp4_value(compute: Format, code: u8, scale: u8) -> f32 {
    let round = |value: f32| match compute {
        Format::F16 => f16::from_f32(value).to_f32(),
        Format::Bf16 => bf16::from_f32(value).to_f32(),
        _ => value,
    };
    round(e2m1::decode(code) * round(e8m0::decode(scale)))
}

fn check_k(k: usize) -> Result<()> {
    if k.is_multiple_of(MX_BLOCK) {
        return Ok(());
    }
    Err(Error::data(format!("k = {k} is not a multiple of the block of {MX_BLOCK}")))
}

/// The scale of a block with this largest magnitude.
fn scale_of(amax: f32) -> u8 {
    if amax == 0.0 {
        return e8m0::encode(0);
    }
    // f64's exponent field: f32's subnormals are normal there.
    let exponent = (f64::from(amax).to_bits() >> 52) as i32 - 1023;
    e8m0::encode(exponent - LARGEST_EXPONENT)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nibbles_and_scales_are_where_they_should_be() {
        let mut codes = vec![0; 2 * 32];
        codes[32 + 16] = 0x5A; // row 1, columns 32 (code 10 = −1.0) and 33 (code 5 = 3.0)
        let tensor = Mxfp4Tensor::new(2, 64, codes, vec![127, 127, 127, 129]).unwrap();
        let values = tensor.dequantise();
        assert_eq!((values[64 + 32], values[64 + 33], values[64 + 34]), (-4.0, 12.0, 0.0));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let message = |result: Result<Mxfp4Tensor>| result.unwrap_err().to_string();
        let new = |codes: usize, scales| Mxfp4Tensor::new(2, 64, vec![0; codes], scales);
        assert_eq!(message(new(64, vec![0, 0, 255, 0])), "the scale of row 1, block 0 is NaN");
        assert_eq!(message(new(63, vec![0; 4])), "2×64 has 64 bytes of e2m1 codes, found 63");
        assert_eq!(message(new(64, vec![0; 5])), "2×64 has 4 bytes of e8m0 scales, found 5");
        let odd = Mxfp4Tensor::new(1, 48, vec![0; 24], vec![0]);
        assert_eq!(message(odd), "k = 48 is not a multiple of the block of 32");
        // A product that wraps to 0 is not what an empty list has.
        for (rows, k) in [(1 << 63, 32), (32, 1 << 63), (1 << 32, 1 << 40)] {
            assert!(
                message(Mxfp4Tensor::new(rows, k, Vec::new(), Vec::new())).starts_with(&format!("{rows}×{k} has "))
            );
            assert!(message(Mxfp4Tensor::quantise::<f32>(rows, k, &[])).starts_with(&format!("{rows}×{k} has ")));
        }
        let mut values = [0.0f32; 64];
        values[33] = f32::INFINITY;
        let found = message(Mxfp4Tensor::quantise(2, 32, &values));
        assert_eq!(found, "the value at row 1, column 1 is inf: MXFP4 cannot hold it");
    }

    #[test]
    fn the_ends_of_f32_have_scales() {
        let quantised = |value: f32| {
            let tensor = Mxfp4Tensor::quantise(1, 32, &[value; 32]).unwrap();
            (tensor.scales()[0], tensor.dequantise()[0])
        };
        assert_eq!(quantised(0.0), (127, 0.0));
        assert_eq!(quantised(2f32.powi(127)), (252, 2f32.powi(127)));
        assert_eq!(quantised(f32::MAX), (252, 6.0 * 2f32.powi(125)), "saturated");
        // Half of the least scale is the least step.
        let least = f32::from_bits(1 << 21);
        assert_eq!(quantised(least), (0, least));
        assert_eq!(quantised(f32::from_bits(1)).1, 0.0);
    }

    #[test]
    fn sixteen_bit_values_are_exact_where_they_are_said_to_be() {
        for scale in 0..e8m0::NAN {
            let power = i32::from(scale) - 127;
            for code in 0..16 {
                let exact = f64::from(e2m1::decode(code)) * 2f64.powi(power);
                let found = [Format::Bf16, Format::F16].map(|format| f64::from(mxfp4_value(format, code, scale)));
                let in_bf16 = exact.abs() < 2f64.powi(128);
                assert_eq!(found[0], if in_bf16 { exact } else { exact.signum() * f64::INFINITY }, "{code} 2^{power}");
                if (-23..=13).contains(&power) {
                    assert_eq!(found[1], exact, "{code} 2^{power}");
                }
                if power < -24 {
                    assert_eq!(found[1], 0.0, "{code} 2^{power}");
                }
                if (14..=15).contains(&power) {
                    assert_eq!(found[1], if exact.abs() > 65504.0 { exact.signum() * f64::INFINITY } else { exact });
                }
                if power > 15 {
                    assert!(!found[1].is_finite(), "{code} 2^{power}");
                }
            }
        }
        for format in [Format::F16, Format::Bf16, Format::F32] {
            assert!((0..16).all(|code| mxfp4_value(format, code, e8m0::NAN).is_nan()));
        }
        assert!(mxfp4_value(Format::F16, 8, 143).is_nan(), "0 · ∞");
        assert_eq!(mxfp4_value(Format::F16, 3, 103), 2.0 * 2f32.powi(-24), "1½ of the least step: ties to even");
    }

    proptest! {
        #[test]
        fn elements_are_within_half_a_step_or_saturate(
            values in proptest::collection::vec((-100f32..100.0, -20i32..20), 64),
        ) {
            let values: Vec<f32> = values.into_iter().map(|(x, e)| x * 2f32.powi(e)).collect();
            let tensor = Mxfp4Tensor::quantise(2, 32, &values).unwrap();
            for (at, (value, found)) in values.iter().zip(tensor.dequantise()).enumerate() {
                let scale = e8m0::decode(tensor.scales()[at / 32]);
                let bound = match value.abs() / scale {
                    x if x < 2.0 => 0.25,
                    x if x < 4.0 => 0.5,
                    x if x <= 6.0 => 1.0,
                    x => { prop_assert!(x < 8.0); 2.0 }
                };
                prop_assert!((value - found).abs() <= bound * scale, "{value} became {found}");
            }
        }

        #[test]
        fn what_is_mxfp4_stays_what_it_is(codes in proptest::collection::vec(any::<u8>(), 16), scale in 2u8..250) {
            let mut codes = codes;
            codes[3] |= 0x06; // a magnitude of 4 or 6, so that the scale is the block's own
            let tensor = Mxfp4Tensor::new(1, 32, codes, vec![scale]).unwrap();
            let again = Mxfp4Tensor::quantise(1, 32, &tensor.dequantise()).unwrap();
            prop_assert_eq!(again.dequantise(), tensor.dequantise());
            prop_assert_eq!(again.scales(), tensor.scales());
        }
    }
}
