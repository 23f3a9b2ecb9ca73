//! What an element should be, and how wrong a found one is.

use std::mem;

use super::Coding;
use crate::cores::each_part;
use warpsmith::format::Format;
use warpsmith::internal::Raise;
use warpsmith::{Error, Result};

/// What one element should be: the exact value, and the largest distance from it that a correct kernel may have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// The exact value, not rounded to the output format.
    pub value: f64,
    /// The largest absolute error allowed, the final rounding included; see the [module](super) for its derivation.
    pub bound: f64,
}

impl Expected {
    /// Nothing is written there.
    pub const UNTOUCHED: Self = Self { value: f64::NAN, bound: -1.0 };

    /// Whether nothing is to be written there.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        self.bound < 0.0
    }

    /// How wrong `actual` is, as error over bound: 0 is perfect, up to 1 is right, above is wrong.
    ///
    /// Never NaN. `actual` is an element read back in the `output` format, which decides from where on an infinity is
    /// right. An infinity or a NaN in the right place scores 0, in the wrong place +∞.
    #[must_use]
    pub fn error(&self, actual: f64, output: Format) -> f64 {
        let all_or_nothing = |right: bool| if right { 0.0 } else { f64::INFINITY };
        if self.value.is_nan() || actual.is_nan() {
            return all_or_nothing(self.value.is_nan() && actual.is_nan());
        }
        if self.value.is_infinite() {
            return all_or_nothing(actual == self.value);
        }
        let largest = largest_finite(output);
        if actual.is_infinite() {
            // Right as soon as a correct kernel may get beyond the range on that side.
            return all_or_nothing(self.value * actual.signum() + self.bound > largest);
        }
        if self.value.abs() - self.bound > largest {
            return f64::INFINITY;
        }
        let error = (actual - self.value).abs();
        if error == 0.0 || self.bound.is_infinite() { 0.0 } else { nan_is_wrong(error / self.bound) }
    }

    /// Whether `actual` is within the bound.
    #[must_use]
    pub fn accepts(&self, actual: f64, output: Format) -> bool {
        self.error(actual, output) <= 1.0
    }
}

/// Only a bound that is itself NaN gets here with NaN; nothing is within such a bound.
fn nan_is_wrong(ratio: f64) -> f64 {
    if ratio.is_nan() { f64::INFINITY } else { ratio }
}

/// Elements that a core copies at a time, at least.
const JOINED: usize = 1 << 18;

/// One behind the other; copied by all cores, as there may be hundreds of millions.
pub(crate) fn joined(parts: &[&[Expected]]) -> Vec<Expected> {
    let length = parts.iter().map(|part| part.len()).sum();
    let mut all = Vec::with_capacity(length);
    let (mut left, mut batches) = (&mut all.spare_capacity_mut()[..length], Vec::new());
    let (mut batch, mut size) = (Vec::new(), 0);
    for part in parts {
        let (to, behind) = left.split_at_mut(part.len());
        left = behind;
        batch.push((to, *part));
        size += part.len();
        if size >= JOINED {
            batches.push(mem::take(&mut batch));
            size = 0;
        }
    }
    batches.push(batch);
    each_part(batches.into_iter(), |batch| {
        for (to, part) in batch {
            for (to, from) in to.iter_mut().zip(*part) {
                to.write(*from);
            }
        }
    });
    // SAFETY: each of so many has been written: they were cut into the parts, of which every one was copied.
    unsafe { all.set_len(length) };
    all
}

/// What a whole result should be: `[m, n]` elements, row-major, in an output format.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    m: usize,
    n: usize,
    output: Format,
    elements: Vec<Expected>,
    coding: Option<Coding>,
}

impl Reference {
    /// Takes expectations made elsewhere, `[m, n]` row-major.
    ///
    /// # Errors
    /// [`Error::is_data`] if there are not `m · n` of them; [`Error::is_unsupported`] for an output format that has no
    /// rounding of its own (NVFP4).
    pub fn new(m: usize, n: usize, output: Format, elements: Vec<Expected>) -> Result<Self> {
        check_output(output)?;
        if elements.len() != m * n {
            return Err(Error::data(format!("a {m}×{n} result has {} elements, found {}", m * n, elements.len())));
        }
        Ok(Self { m, n, output, elements, coding: None })
    }

    /// The same numbers, which are f32, quantised to NVFP4. Their bounds stay those before that.
    ///
    /// # Errors
    /// Data, if they are of another format, or the coding is of another number of rows.
    pub fn coded(self, coding: Coding) -> Result<Self> {
        if self.output != Format::F32 || coding.factors().len() != self.m {
            let (rows, factors) = (self.m, coding.factors().len());
            return Err(Error::data(format!("{factors} factors for {rows} rows of {}", self.output)));
        }
        Ok(Self { output: Format::Nvfp4, coding: Some(coding), ..self })
    }

    /// How the result is stored, where that is NVFP4.
    #[must_use]
    pub fn coding(&self) -> Option<&Coding> {
        self.coding.as_ref()
    }

    /// The same of these rows; where there is none, nothing is written.
    #[must_use]
    pub fn of_rows(&self, rows: &[Option<usize>]) -> Self {
        let untouched = vec![Expected::UNTOUCHED; self.n];
        let row = |row: &Option<usize>| row.map_or(&untouched[..], |row| &self.elements[row * self.n..][..self.n]);
        Self {
            m: rows.len(),
            n: self.n,
            output: self.output,
            elements: joined(&rows.iter().map(row).collect::<Vec<_>>()),
            coding: self.coding.as_ref().map(|coding| coding.of_rows(rows)),
        }
    }

    /// The number of rows.
    #[must_use]
    pub fn m(&self) -> usize {
        self.m
    }

    /// The number of columns.
    #[must_use]
    pub fn n(&self) -> usize {
        self.n
    }

    /// The exact values, quantised by the rule: codes, then scales, of padding 0; none, where the result is in another format.
    #[must_use]
    pub fn quantised(&self) -> Option<Vec<u8>> {
        self.coding.as_ref().map(|coding| coding.quantised(&self.elements, self.n))
    }

    /// The format of the result, and that the bounds are for; of NVFP4 these are for f32.
    #[must_use]
    pub fn output(&self) -> Format {
        self.output
    }

    /// All elements, row-major.
    #[must_use]
    pub fn elements(&self) -> &[Expected] {
        &self.elements
    }
}

pub(super) fn check_output(output: Format) -> Result<()> {
    match output {
        Format::F16 | Format::Bf16 | Format::F32 => Ok(()),
        _ => Err(Error::unsupported(format!("{output} is no output format: expected f16, bf16 or f32"))),
    }
}

/// The largest finite number of a format.
pub(super) fn largest_finite(format: Format) -> f64 {
    match format {
        Format::Nvfp4 => 2688.0,
        Format::F16 => 65504.0,
        Format::Bf16 => half::bf16::MAX.to_f64(),
        Format::F32 => f64::from(f32::MAX),
        // Nothing passes in a format that the oracle does not know.
        _ => f64::NAN,
    }
}

/// Half an ulp of `format` at `magnitude` (zero or more): what rounding to nearest may add. The spacing is that of the
/// binade of `magnitude`; below the smallest normal number it is that of the subnormals.
pub(super) fn half_ulp(format: Format, magnitude: f64) -> f64 {
    // Significant bits, the leading one included, and the exponent of the smallest normal number.
    let (precision, smallest) = match format {
        Format::F16 => (11, -14),
        Format::Bf16 => (8, -126),
        Format::F32 => (24, -126),
        Format::Nvfp4 => (2, 0),
        _ => return f64::NAN,
    };
    // f64's exponent field; it is below the smallest of these formats for f64's own subnormals and zero.
    let exponent = (magnitude.to_bits() >> 52 & 0x7FF) as i32 - 1023;
    2f64.powi(exponent.max(smallest) - precision)
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    #[test]
    fn half_an_ulp_is_half_the_distance_to_the_next_number() {
        for bits in 0..0x7BFFu16 {
            let (x, next) = (f16::from_bits(bits).to_f64(), f16::from_bits(bits + 1).to_f64());
            assert_eq!(half_ulp(Format::F16, x), (next - x) / 2.0, "{x}");
        }
        for bits in (0..0x7F7Fu16).step_by(7) {
            let (x, next) = (bf16::from_bits(bits).to_f64(), bf16::from_bits(bits + 1).to_f64());
            assert_eq!(half_ulp(Format::Bf16, x), (next - x) / 2.0, "{x}");
        }
        for x in [0.0f32, 1e-44, f32::MIN_POSITIVE, 1.0, 1.999_999, 3e38] {
            assert_eq!(half_ulp(Format::F32, f64::from(x)), (f64::from(x.next_up()) - f64::from(x)) / 2.0, "{x}");
        }
    }

    #[test]
    fn the_error_is_measured_in_bounds() {
        let one = Expected { value: 1.0, bound: 0.5 };
        assert_eq!(one.error(1.0, Format::F16), 0.0);
        assert_eq!(one.error(1.25, Format::F16), 0.5);
        assert_eq!(one.error(-1.0, Format::F16), 4.0);
        assert!(one.accepts(0.5, Format::F16) && !one.accepts(0.49, Format::F16));
    }

    #[test]
    fn nan_and_infinity_pass_only_where_they_belong() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        let judge = |value, bound, actual| Expected { value, bound }.accepts(actual, Format::F16);
        assert!(!judge(1.0, 0.5, nan) && !judge(1.0, inf, nan) && !judge(inf, nan, nan));
        assert!(judge(nan, nan, nan) && !judge(nan, nan, 1.0) && !judge(nan, 1.0, inf));
        assert!(!judge(1.0, 0.5, inf) && !judge(65000.0, 32.0, inf), "safely finite");
        assert!(judge(65500.0, 32.0, inf) && judge(65500.0, 32.0, 65504.0), "either");
        assert!(!judge(65500.0, 32.0, -inf), "the wrong sign");
        assert!(judge(70000.0, 32.0, inf) && !judge(70000.0, 32.0, 65504.0) && !judge(70000.0, 32.0, -inf));
        assert!(judge(-70000.0, 32.0, -inf) && !judge(-70000.0, 32.0, inf));
        assert!(judge(inf, nan, inf) && !judge(inf, nan, -inf) && !judge(inf, nan, 1.0));
        assert!(!judge(1.0, nan, 1.5), "a bound that is NaN accepts nothing but the value");
    }

    #[test]
    fn a_reference_has_all_its_elements_and_a_format_that_rounds() {
        assert!(Reference::new(2, 2, Format::F16, Vec::new()).unwrap_err().is_data());
        assert!(Reference::new(0, 2, Format::Nvfp4, Vec::new()).unwrap_err().is_unsupported());
    }
}
