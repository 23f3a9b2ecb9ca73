//! Values made NVFP4, by search: the nearest of all codes and of all scales is found by its distance. What is rounded before is so
//! once, from f64 to f32, which gives the bits of f32's own operation.

use warpsmith::internal::Raise;
use warpsmith::internal::format::{BLOCK, e2m1, e4m3};
use warpsmith::spec::Quantise;
use warpsmith::{Error, Result};

use super::CHUNK;

/// What becomes of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantised {
    /// `[m, K/2]`.
    pub codes: Vec<u8>,
    /// In the problem's layout; 0 where that pads.
    pub scales: Vec<u8>,
    /// The tensor's.
    pub factor: f32,
}

/// `x`, `[m, K]`, each value exactly as it is in its format, under a given factor or the tensor's own.
///
/// # Errors
/// Data, if `x` has not `m · K` values, or a factor is given where the tensor has its own, or the other way round.
pub fn quantise(quantise: &Quantise, m: u32, x: &[f32], given: Option<f32>) -> Result<Quantised> {
    let (m, k, layout) = (m as usize, quantise.row_length() as usize, quantise.scale_layout());
    if x.len() != m * k || given.is_some() == quantise.is_own() {
        return Err(Error::data(format!("{m} rows of {quantise}: {} values, factor {given:?}", x.len())));
    }
    let factor = given.unwrap_or_else(|| own_factor(x));
    let mut codes = Vec::with_capacity(x.len() / 2);
    let mut scales = vec![0; layout.bytes(m, k)];
    for (at, block) in x.chunks(BLOCK).enumerate() {
        let (scale, of_block) = quantised_block(block, factor);
        scales[layout.offset(k, at / (k / BLOCK), at % (k / BLOCK))] = scale;
        codes.extend(of_block);
    }
    Ok(Quantised { codes, scales, factor })
}

/// What becomes of rows that are made e4m3.
#[derive(Clone, Debug, PartialEq)]
pub struct E4m3Rows {
    /// `[m, K]`, in the order of kernels.
    pub values: Vec<u8>,
    /// `[m]`, or `[m, ⌈K/128⌉]`.
    pub factors: Vec<f32>,
}

/// Elements along K whose order is the kernels'.
const SPAN: usize = 64;

/// `x`, `[m, K]`, each value exactly as it is in its format.
///
/// # Errors
/// Data, if `x` has not `m · K` values.
pub fn to_e4m3(quantise: &Quantise, m: u32, x: &[f32]) -> Result<E4m3Rows> {
    let (m, k) = (m as usize, quantise.row_length() as usize);
    if x.len() != m * k {
        return Err(Error::data(format!("{m} rows of {quantise}: {} values", x.len())));
    }
    let mut rows = E4m3Rows { values: Vec::with_capacity(m * k), factors: Vec::with_capacity(m) };
    let of_factor = if quantise.has_k_factors() { CHUNK } else { k };
    for part in x.chunks(k).flat_map(|row| row.chunks(of_factor)) {
        let factor = factor_of(part);
        for position in 0..part.len() {
            let (span, j, h, t, i) =
                (position / SPAN, position / 32 % 2, position / 16 % 2, position / 4 % 4, position % 4);
            rows.values.push(e4m3_of(part[SPAN * span + 16 * t + 8 * j + 4 * h + i], factor));
        }
        rows.factors.push(factor);
    }
    Ok(rows)
}

/// What maps the largest finite magnitude of what has it to the largest e4m3 number; 1, if there is none but 0.
pub(super) fn factor_of(row: &[f32]) -> f32 {
    let finite = row.iter().filter(|x| x.is_finite()).map(|x| f64::from(x.abs()));
    match finite.fold(0.0, f64::max) {
        0.0 => 1.0,
        most => ((most / f64::from(e4m3::MAX)) as f32).max(f32::MIN_POSITIVE),
    }
}

/// The byte of a value under its factor.
pub(super) fn e4m3_of(x: f32, factor: f32) -> u8 {
    let sign = if x.is_sign_negative() { 0x80 } else { 0 };
    match x.is_finite() {
        true => sign | nearest(quotient(x.abs(), factor), e4m3::NAN, e4m3::decode),
        false => e4m3::NAN,
    }
}

/// What maps the largest finite magnitude to the largest code under the largest scale; 1, if there is none but 0.
#[must_use]
pub fn own_factor(x: &[f32]) -> f32 {
    let finite = x.iter().filter(|x| x.is_finite()).map(|x| f64::from(x.abs()));
    match finite.fold(0.0, f64::max) {
        0.0 => 1.0,
        most => ((most / f64::from(e2m1::MAX * e4m3::MAX)) as f32).max(f32::MIN_POSITIVE),
    }
}

fn quotient(x: f32, divisor: f32) -> f32 {
    (f64::from(x) / f64::from(divisor)) as f32
}

/// The one of `0..count` whose value, which rises with it, is nearest to `x`: the even one of two.
fn nearest(x: f32, count: u8, value: impl Fn(u8) -> f32) -> u8 {
    let distance = |code: &u8| (f64::from(value(*code)) - f64::from(x)).abs();
    let closer = |a: &u8, b: &u8| distance(a).total_cmp(&distance(b)).then((a % 2).cmp(&(b % 2)));
    (0..count).min_by(closer).unwrap_or_default()
}

/// The scale of a block in which there is NaN.
pub(super) const NAN_SCALE: u8 = 0x7F;

/// The scale of a block, and its codes, two a byte.
pub(super) fn quantised_block(block: &[f32], factor: f32) -> (u8, impl Iterator<Item = u8>) {
    let scale = scale_of(block, factor);
    let divisor = (f64::from(e4m3::decode(scale)) * f64::from(factor)) as f32;
    let code = move |x: f32| if e4m3::is_nan(scale) { 0 } else { code_of(x, divisor) };
    (scale, block.chunks(2).map(move |pair| code(pair[0]) | code(pair[1]) << 4))
}

/// The byte of a block's scale: NaN if one of its values is.
fn scale_of(block: &[f32], factor: f32) -> u8 {
    match block.iter().any(|x| x.is_nan()) {
        true => NAN_SCALE,
        false => scale_of_most(block.iter().map(|x| x.abs()).fold(0.0, f32::max), factor),
    }
}

/// That of a block with this largest magnitude.
pub(super) fn scale_of_most(most: f32, factor: f32) -> u8 {
    let ideal = match most {
        0.0 => 1.0,
        most => quotient(quotient(most, e2m1::MAX), factor).clamp(e4m3::MIN_SUBNORMAL, e4m3::MAX),
    };
    nearest(ideal, NAN_SCALE, e4m3::decode)
}

/// The code of a number that is divided by the block's scale times the factor.
pub(super) fn code_of(x: f32, divisor: f32) -> u8 {
    let sign = if x.is_sign_negative() { 8 } else { 0 };
    // Far away all distances round to the same.
    sign | nearest(quotient(x.abs(), divisor).min(e2m1::MAX), 8, e2m1::decode)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use warpsmith::format::{Nvfp4Tensor, ScaleLayout};

    use super::*;

    fn block(first: &[f32]) -> Vec<f32> {
        first.iter().copied().chain([0.0; 64]).take(64).collect()
    }

    fn given(x: &[f32], factor: f32) -> Quantised {
        quantise(&Quantise::new().k(64), 1, x, Some(factor)).unwrap()
    }

    #[test]
    fn known_bytes() {
        // The scale is 6 / 6 = 1; 0.25, 1.25 and 2.5 are ties, which go to 0, 1 and 2; −0 keeps its sign.
        let found = given(&block(&[6.0, -6.0, 0.25, -0.25, 1.25, 1.75, 2.5, 3.5, -0.0]), 1.0);
        assert_eq!(found.codes[..5], [0xF7, 0x80, 0x42, 0x64, 0x08]);
        assert_eq!(found.scales, [0x38; 4], "blocks of zeros have the scale 1");
        // Half of the smallest scale, which it has all the same.
        let found = given(&block(&[6.0 / 1024.0]), 1.0);
        assert_eq!((found.scales[0], found.codes[0]), (0x01, 0x05));
    }

    #[test]
    fn what_is_too_large_saturates_and_nan_stays() {
        let found = given(&block(&[f32::INFINITY, 448.0, f32::NEG_INFINITY]), 1.0);
        assert_eq!((found.scales[0], &found.codes[..2]), (0x7E, &[0x27, 0x0F][..]));
        let found = given(&block(&[1e6, 1e6]), 1.0);
        assert_eq!((found.scales[0], found.codes[0]), (0x7E, 0x77));
        let found = given(&block(&[6.0, f32::NAN]), 1.0);
        assert_eq!((found.scales[0], found.codes[0]), (0x7F, 0));
    }

    #[test]
    fn the_own_factor_is_of_finite_numbers() {
        assert_eq!(own_factor(&[1.0, -2688.0, f32::INFINITY, f32::NAN]), 1.0);
        assert_eq!(own_factor(&[0.0, -0.0]), 1.0);
        assert_eq!(own_factor(&[]), 1.0);
        assert_eq!(own_factor(&[f32::from_bits(1)]), f32::MIN_POSITIVE);
        let own = Quantise::new().k(64).own();
        assert_eq!(quantise(&own, 1, &block(&[f32::INFINITY]), None).unwrap().factor, 1.0);
        assert!(quantise(&own, 1, &block(&[]), Some(1.0)).is_err());
        assert!(quantise(&own, 2, &block(&[]), None).is_err());
    }

    proptest! {
        /// The same rule as the host's own, where that takes the values.
        #[test]
        fn the_host_quantises_alike(seed: u64, rows in 1..4usize, exponent in -40..40i32) {
            let mut random = fastrand::Rng::with_seed(seed);
            let digits = |random: &mut fastrand::Rng| (random.f32() * 2.0 - 1.0) * 2f32.powi(random.i32(-12..3) + exponent);
            let x: Vec<f32> = (0..rows * 128).map(|_| digits(&mut random)).collect();
            let tensor = Nvfp4Tensor::quantise(rows, 128, &x).unwrap().with_layout(ScaleLayout::Swizzled128x4, 0).unwrap();
            let own = Quantise::new().k(128).scales(ScaleLayout::Swizzled128x4).own();
            let found = quantise(&own, rows as u32, &x, None).unwrap();
            prop_assert_eq!(found.factor, tensor.tensor_scale());
            prop_assert_eq!(&found.scales, tensor.scales());
            prop_assert_eq!(&found.codes, tensor.codes());
        }
    }
}
