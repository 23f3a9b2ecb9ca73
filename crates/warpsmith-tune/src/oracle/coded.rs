//! A result in NVFP4: which scales and codes a correct kernel may store.
//!
//! A kernel computes each element in f32, within the [bound](super) of an f32 result, and quantises these numbers by the rule of
//! [`quantise`](super::quantise), every step of which is known to the last bit. So a byte is right if some numbers within the
//! bounds give it:
//!
//! * **A scale** rises with the largest magnitude of its block. That lies between the largest of |value| − bound, where that is
//!   above 0, and the largest of |value| + bound; right is every scale between those of the two. A block that may be all zeros
//!   may have the scale 1.
//! * **A code**, under the scale that is stored, rises with the number. Right is every code between those of value − bound and
//!   value + bound; 0 may have either sign.
//! * **NaN** in one of the 16 makes the scale NaN and all codes 0.

use super::Expected;
use super::quantise::{NAN_SCALE, code_of, quantised_block, scale_of_most};
use warpsmith::format::ScaleLayout;
use warpsmith::internal::Raise;
use warpsmith::internal::format::{BLOCK, e4m3};
use warpsmith::{Error, Result};

/// How a result in NVFP4 lies, and its factor for each row.
#[derive(Clone, Debug, PartialEq)]
pub struct Coding {
    layout: ScaleLayout,
    factors: Vec<f32>,
}

impl Coding {
    /// Of rows with these factors, which are positive and normal, and so many columns.
    ///
    /// # Errors
    /// Data, if a factor is not, or columns are no whole blocks.
    pub fn new(layout: ScaleLayout, factors: Vec<f32>, columns: usize) -> Result<Self> {
        if let Some(factor) = factors.iter().find(|factor| !(factor.is_normal() && **factor > 0.0)) {
            return Err(Error::data(format!("the factor of a result is {factor:e}: it must be positive and normal")));
        }
        if !columns.is_multiple_of(BLOCK) {
            return Err(Error::data(format!("{columns} columns are no whole blocks of {BLOCK}")));
        }
        Ok(Self { layout, factors })
    }

    /// How the scales lie.
    #[must_use]
    pub fn layout(&self) -> ScaleLayout {
        self.layout
    }

    /// The factor of each row.
    #[must_use]
    pub fn factors(&self) -> &[f32] {
        &self.factors
    }

    /// Codes and scales of exact values, in rows of `n`.
    pub(super) fn quantised(&self, elements: &[Expected], n: usize) -> Vec<u8> {
        let mut codes = Vec::with_capacity(elements.len() / 2);
        let mut scales = vec![0; self.layout.bytes(self.factors.len(), n)];
        for (at, block) in elements.chunks_exact(BLOCK).enumerate() {
            let (row, values) =
                (at / (n / BLOCK), block.iter().map(|element| element.value as f32).collect::<Vec<_>>());
            let (scale, of_block) = quantised_block(&values, self.factors[row]);
            scales[self.layout.offset(n, row, at % (n / BLOCK))] = scale;
            codes.extend(of_block);
        }
        codes.extend(scales);
        codes
    }

    /// The same of these rows; of none, of a row with any factor.
    pub(super) fn of_rows(&self, rows: &[Option<usize>]) -> Self {
        let factor = |row: &Option<usize>| row.map_or(1.0, |row| self.factors[row]);
        Self { layout: self.layout, factors: rows.iter().map(factor).collect() }
    }
}

/// Scales of a block that are right, as positive codes of e4m3 in their order.
#[derive(Clone, Copy, Debug)]
pub struct RightScales {
    least: u8,
    most: u8,
    /// Of a block of zeros.
    or_one: Option<u8>,
}

impl RightScales {
    /// Of the elements of a block, under a factor.
    #[must_use]
    pub fn of(block: &[Expected], factor: f32) -> Self {
        if block.iter().any(|element| element.value.is_nan()) {
            return Self { least: NAN_SCALE, most: NAN_SCALE, or_one: None };
        }
        let magnitudes = block.iter().map(magnitudes);
        let (least, most) = magnitudes.fold((0.0f32, 0.0f32), |(a, b), (low, high)| (a.max(low), b.max(high)));
        let of = |most| scale_of_most(most, factor);
        match (least, most) {
            (_, 0.0) => Self { least: of(0.0), most: of(0.0), or_one: None },
            (0.0, most) => Self { least: of(f32::from_bits(1)), most: of(most), or_one: Some(of(0.0)) },
            (least, most) => Self { least: of(least), most: of(most), or_one: None },
        }
    }

    /// Whether a stored scale is right.
    #[must_use]
    pub fn accepts(&self, scale: u8) -> bool {
        (self.least..=self.most).contains(&scale) || self.or_one == Some(scale)
    }
}

/// The smallest and the largest magnitude that an element may have.
fn magnitudes(element: &Expected) -> (f32, f32) {
    let (low, high) = reach(element);
    let least = if low <= 0.0 && high >= 0.0 { 0.0 } else { low.abs().min(high.abs()) };
    (least, low.abs().max(high.abs()))
}

/// The smallest and the largest number that an element may be, which is not NaN.
fn reach(element: &Expected) -> (f32, f32) {
    let Expected { value, bound } = *element;
    match value.is_infinite() || bound.is_nan() {
        true => (value as f32, value as f32),
        false => ((value - bound) as f32, (value + bound) as f32),
    }
}

/// How wrong a stored code is, under a stored scale, in a block that has NaN or not: 0 is what the exact value gives, 1 what some
/// number within the bound does, else it is infinite.
#[must_use]
pub fn error_of_code(element: &Expected, is_nan: bool, scale: u8, factor: f32, code: u8) -> f64 {
    let all_or_nothing = |right: bool| if right { 0.0 } else { f64::INFINITY };
    if is_nan || e4m3::is_nan(scale) {
        return all_or_nothing(is_nan && code == 0);
    }
    let divisor = (f64::from(e4m3::decode(scale)) * f64::from(factor)) as f32;
    let (low, high) = reach(element);
    // A zero may have either sign.
    let least = if low <= 0.0 { code_of(-low.abs(), divisor) } else { code_of(low, divisor) };
    let most = if high >= 0.0 { code_of(high.abs(), divisor) } else { code_of(high, divisor) };
    match (order(least)..=order(most)).contains(&order(code)) {
        true if code & 7 == code_of(element.value as f32, divisor) & 7 => 0.0,
        true => 1.0,
        false => f64::INFINITY,
    }
}

/// The place of a code among all, from −6 to 6.
fn order(code: u8) -> i8 {
    let magnitude = (code & 7) as i8;
    if code & 8 == 0 { magnitude + 1 } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(first: &[(f64, f64)]) -> Vec<Expected> {
        let rest = std::iter::repeat_n((0.0, 0.0), BLOCK - first.len());
        first.iter().copied().chain(rest).map(|(value, bound)| Expected { value, bound }).collect()
    }

    fn right(first: &[(f64, f64)], factor: f32) -> Vec<u8> {
        let scales = RightScales::of(&block(first), factor);
        (0..=255).filter(|scale| scales.accepts(*scale)).collect()
    }

    fn codes(value: f64, bound: f64) -> Vec<u8> {
        (0..16).filter(|code| error_of_code(&Expected { value, bound }, false, 0x38, 1.0, *code) <= 1.0).collect()
    }

    #[test]
    fn a_scale_is_that_of_some_largest_magnitude() {
        assert_eq!(right(&[(6.0, 0.0), (1.0, 100.0)], 1.0)[..2], [0x38, 0x39], "another may be larger");
        assert_eq!(right(&[(6.0, 0.0), (-5.9, 0.0)], 1.0), [0x38]);
        // 6 · 1.0625 is the tie between 1 and 1.125, which goes to 1.
        assert_eq!(right(&[(-6.375, 0.0)], 1.0), [0x38]);
        assert_eq!(right(&[(-6.375, 1e-5)], 1.0), [0x38, 0x39]);
        assert_eq!(right(&[(12.0, 0.0)], 2.0), [0x38]);
        assert_eq!(right(&[], 1.0), [0x38], "zeros");
        assert_eq!(right(&[(0.0, 1e-9)], 1.0), [0x01, 0x38], "zeros, or next to it");
        assert_eq!(right(&[(f64::INFINITY, 0.0)], 1.0), [0x7E]);
        assert_eq!(right(&[(f64::NAN, 0.0), (6.0, 0.0)], 1.0), [0x7F]);
        assert_eq!(right(&[(1.0, f64::INFINITY)], 1.0).len(), 0x7E, "nothing is known but that it is no NaN");
    }

    #[test]
    fn a_code_is_that_of_some_number_within_the_bound() {
        assert_eq!(codes(1.0, 0.0), [2]);
        assert_eq!(codes(1.0, 0.25), [2], "ties go to it from both sides");
        assert_eq!(codes(1.0, 0.3), [1, 2, 3]);
        assert_eq!(codes(-1.0, 0.3), [9, 10, 11]);
        assert_eq!(codes(0.0, 0.0), [0, 8]);
        assert_eq!(codes(0.2, 0.3), [0, 1, 8]);
        assert_eq!(codes(0.2, 0.1), [0, 1], "a tie, and above");
        assert_eq!(codes(9.0, 1.0), [7]);
        assert_eq!(codes(f64::NEG_INFINITY, 0.0), [15]);
        assert_eq!(codes(0.0, f64::INFINITY).len(), 16);
        let one = Expected { value: 1.0, bound: 0.3 };
        assert_eq!(error_of_code(&one, false, 0x38, 1.0, 2), 0.0);
        assert_eq!(error_of_code(&one, false, 0x38, 1.0, 3), 1.0);
        assert_eq!(error_of_code(&one, true, 0x7F, 1.0, 0), 0.0);
        assert_eq!(error_of_code(&one, true, 0x7F, 1.0, 2), f64::INFINITY);
        assert_eq!(error_of_code(&one, false, 0x7F, 1.0, 0), f64::INFINITY);
        assert_eq!(error_of_code(&one, false, 0x40, 1.0, 1), 0.0, "under the scale 2");
    }

    #[test]
    fn factors_and_columns_are_looked_at() {
        assert!(Coding::new(ScaleLayout::Linear, vec![1.0, 0.0], 16).unwrap_err().is_data());
        assert!(Coding::new(ScaleLayout::Linear, vec![1.0], 24).unwrap_err().is_data());
    }
}
