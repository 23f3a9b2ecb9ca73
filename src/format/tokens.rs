//! Tokens in e4m3: one byte a value, and a factor a row, or a row and 128 of k.

use super::e4m3;
use crate::error::{Error, Result};

/// Elements along k whose order is the kernels'.
const SPAN: usize = 64;

/// A `[rows, k]` tensor of e4m3 values with an f32 factor a row: `value[row, k] = e4m3(byte) · factor[row]`; or with one for each
/// row and 128 of k: `e4m3(byte) · factor[row, k / 128]`, of which the last of a row is that of what is left.
///
/// The bytes of each 64 of k lie in the order that matrix instructions take them in: see [`E4m3Tensor::position`].
///
/// # Quantised
/// Every step is one operation of IEEE 754 in f32, rounded to nearest, ties to even; the device has the same bits:
///
/// ```text
/// factor = max(largest finite |x| of the row, or of these 128 of it / 448, 2⁻¹²⁶); 1 where there is none but zeros
/// byte   = e4m3(x / factor), at most ±448
/// ```
///
/// An infinity is no number here and becomes NaN, as NaN does: byte 0x7F. Neither counts for the factor.
///
/// ```
/// use warpsmith::format::E4m3Tensor;
/// let tensor = E4m3Tensor::quantise(1, 64, &[0.5; 64])?;
/// assert_eq!(tensor.factors(), [0.5 / 448.0]);
/// assert!(tensor.values().iter().all(|byte| *byte == 0x7E), "448");
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct E4m3Tensor {
    rows: usize,
    k: usize,
    /// Elements along k that have a factor: a row, or 128.
    span: usize,
    values: Vec<u8>,
    factors: Vec<f32>,
}

impl E4m3Tensor {
    /// Elements along k that have a factor where a row has several.
    pub const K_FACTOR: usize = 128;

    /// Factors of a row of `k` values: one, or one for each 128 of them.
    #[must_use]
    pub fn row_factors(k: usize, along_k: bool) -> usize {
        if along_k { k.div_ceil(Self::K_FACTOR) } else { 1 }
    }

    /// Where in a row the value of column `k` lies. Within each 64, the value of k = 16t + 8j + 4h + i lies at
    /// 32j + 16h + 4t + i, for j and h below 2, t and i below 4.
    ///
    /// ```
    /// use warpsmith::format::E4m3Tensor;
    /// assert_eq!([0, 3, 4, 8, 16, 63, 64].map(E4m3Tensor::position), [0, 3, 16, 32, 4, 63, 64]);
    /// ```
    #[must_use]
    pub const fn position(k: usize) -> usize {
        let (span, within) = (k / SPAN * SPAN, k % SPAN);
        let (t, j, h, i) = (within / 16, within / 8 % 2, within / 4 % 2, within % 4);
        span + 32 * j + 16 * h + 4 * t + i
    }

    /// Quantises `rows` rows of `k` values, with a factor a row.
    ///
    /// # Errors
    /// [`Error::is_unsupported`] if `k` is no positive multiple of 64; [`Error::is_data`] if there are not rows · k values.
    pub fn quantise(rows: usize, k: usize, x: &[f32]) -> Result<Self> {
        Self::quantised(rows, k, k, x)
    }

    /// The same, with a factor for each row and 128 of k.
    ///
    /// ```
    /// use warpsmith::format::E4m3Tensor;
    /// let x: Vec<f32> = (0..192).map(|k| if k < 128 { 448.0 } else { 0.5 }).collect();
    /// let tensor = E4m3Tensor::quantise_along_k(1, 192, &x)?;
    /// assert_eq!(tensor.factors(), [1.0, 0.5 / 448.0]);
    /// # Ok::<(), warpsmith::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`E4m3Tensor::quantise`].
    pub fn quantise_along_k(rows: usize, k: usize, x: &[f32]) -> Result<Self> {
        Self::quantised(rows, k, Self::K_FACTOR, x)
    }

    fn quantised(rows: usize, k: usize, span: usize, x: &[f32]) -> Result<Self> {
        if k == 0 || !k.is_multiple_of(SPAN) {
            return Err(Error::unsupported(format!("k = {k}: must be a positive multiple of {SPAN}")));
        }
        if rows.checked_mul(k) != Some(x.len()) {
            return Err(Error::data(format!("{rows}×{k} values are needed, found {}", x.len())));
        }
        let (mut values, mut factors) = (vec![0; x.len()], Vec::with_capacity(rows * k.div_ceil(span)));
        let rows_of = x.chunks_exact(k).zip(values.chunks_exact_mut(k));
        // Either span is one of whole orders.
        let spans = rows_of.flat_map(|(x, out)| x.chunks(span).zip(out.chunks_mut(span)));
        for (x, out) in spans {
            let factor = factor_of(x);
            for (k, x) in x.iter().enumerate() {
                out[Self::position(k)] = if x.is_finite() { e4m3::encode(x / factor) } else { e4m3::NAN };
            }
            factors.push(factor);
        }
        Ok(Self { rows, k, span, values, factors })
    }

    /// The number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns.
    #[must_use]
    pub fn k(&self) -> usize {
        self.k
    }

    /// The bytes, `[rows, k]`, in the kernels' order.
    #[must_use]
    pub fn values(&self) -> &[u8] {
        &self.values
    }

    /// A factor for each row, or `[rows, ⌈k/128⌉]`.
    #[must_use]
    pub fn factors(&self) -> &[f32] {
        &self.factors
    }

    /// The values again, `[rows, k]`: byte times factor, rounded to f32.
    #[must_use]
    pub fn dequantise(&self) -> Vec<f32> {
        let spans = self.values.chunks_exact(self.k).flat_map(|row| row.chunks(self.span)).zip(&self.factors);
        let value = |span: &[u8], k, factor| e4m3::decode(span[Self::position(k)]) * factor;
        spans.flat_map(|(span, factor)| (0..span.len()).map(move |k| value(span, k, factor))).collect()
    }
}

/// The factor of these values.
fn factor_of(x: &[f32]) -> f32 {
    let largest = x.iter().filter(|x| x.is_finite()).fold(0.0f32, |largest, x| largest.max(x.abs()));
    if largest == 0.0 { 1.0 } else { (largest / e4m3::MAX).max(f32::MIN_POSITIVE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_is_taken_once() {
        let mut taken = [false; 128];
        (0..128).for_each(|k| taken[E4m3Tensor::position(k)] = true);
        assert!(taken.iter().all(|taken| *taken));
    }

    #[test]
    fn what_is_no_number_stays_in_its_place_and_changes_no_other() {
        let mut x: Vec<f32> = (0..128).map(|i| i as f32 - 30.0).collect();
        let plain = E4m3Tensor::quantise(1, 128, &x).unwrap();
        (x[5], x[70], x[100]) = (f32::NAN, f32::INFINITY, f32::NEG_INFINITY);
        let tensor = E4m3Tensor::quantise(1, 128, &x).unwrap();
        assert_eq!(tensor.factors(), plain.factors());
        for (k, (found, plain)) in tensor.dequantise().into_iter().zip(plain.dequantise()).enumerate() {
            assert!(if [5, 70, 100].contains(&k) { found.is_nan() } else { found == plain }, "{k}");
        }
        let broken = E4m3Tensor::quantise(1, 64, &[f32::INFINITY; 64]).unwrap();
        assert_eq!((broken.factors(), broken.values()[0]), (&[1.0][..], 0x7F));
    }

    #[test]
    fn zeros_and_the_smallest_rows_keep_their_signs() {
        let zeros = E4m3Tensor::quantise(1, 64, &[-0.0; 64]).unwrap();
        assert_eq!((zeros.factors(), zeros.values()[0]), (&[1.0][..], 0x80));
        let tiny = E4m3Tensor::quantise(1, 64, &[-f32::MIN_POSITIVE; 64]).unwrap();
        assert_eq!((tiny.factors(), tiny.values()[0]), (&[f32::MIN_POSITIVE][..], e4m3::encode(-1.0)));
    }

    #[test]
    fn each_128_of_k_has_a_factor_and_the_rest_of_a_row_one_of_its_own() {
        let x: Vec<f32> = (0..2 * 192).map(|i| (i % 7) as f32 * 2f32.powi(i / 64) - 3.0).collect();
        let tensor = E4m3Tensor::quantise_along_k(2, 192, &x).unwrap();
        let parts = [0..128, 128..192, 192..320, 320..384];
        for (part, (range, factor)) in parts.into_iter().zip(tensor.factors()).enumerate() {
            let alone = E4m3Tensor::quantise(1, range.len(), &x[range.clone()]).unwrap();
            assert_eq!((alone.factors()[0], alone.values()), (*factor, &tensor.values()[range.clone()]), "{part}");
            assert_eq!(alone.dequantise(), tensor.dequantise()[range], "{part}");
        }
        assert_eq!(tensor.factors().len(), 4);
    }

    #[test]
    fn wrong_shapes_are_refused() {
        assert!(E4m3Tensor::quantise(1, 96, &[0.0; 96]).unwrap_err().is_unsupported());
        assert!(E4m3Tensor::quantise(2, 64, &[0.0; 64]).unwrap_err().is_data());
    }
}
