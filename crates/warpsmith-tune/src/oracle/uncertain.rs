//! A value on its way through a kernel's f32 arithmetic.

use super::Expected;
use super::expected::half_ulp;
use warpsmith::format::Format;

/// One f32 operation that may be off by an ulp: 2⁻²³.
const ROUNDING: f64 = 1.0 / (1 << 23) as f64;

/// A value, and how far the kernel may be from it. An infinite value is exact: it came from an infinite operand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Uncertain {
    pub(super) value: f64,
    pub(super) error: f64,
}

impl Uncertain {
    /// Rounded to f32 once more, or twice. An overflow on the way leaves nothing to be said.
    pub(super) fn rounded(self) -> Self {
        let reach = self.value.abs() + self.error;
        let error = if reach > f64::from(f32::MAX) {
            f64::INFINITY
        } else {
            self.error + ROUNDING * reach + f64::from(f32::MIN_POSITIVE)
        };
        Self { value: self.value, error }
    }

    pub(super) fn times(self, factor: f32) -> Self {
        let factor = f64::from(factor);
        let (value, error) = (self.value * factor, self.error * factor.abs());
        // 0·∞: what has overflowed may be anything.
        let error = if error.is_nan() && !value.is_nan() { f64::INFINITY } else { error };
        Self { value, error }.rounded()
    }

    pub(super) fn plus(self, addend: f32) -> Self {
        Self { value: self.value + f64::from(addend), ..self }.rounded()
    }

    /// What of it lies between `low` and `high`: it is off by no more than the part of its reach that does. NaN stays NaN.
    pub(super) fn clamped(self, low: f64, high: f64) -> Self {
        let clamped = |x: f64| match x {
            x if x < low => low,
            x if x > high => high,
            x => x,
        };
        let value = clamped(self.value);
        if self.value.is_infinite() {
            return Self { value, error: 0.0 };
        }
        let [above, below] = [self.error, -self.error].map(|error| (clamped(self.value + error) - value).abs());
        Self { value, error: above.max(below) }
    }

    pub(super) fn multiplied(self, other: Self) -> Self {
        let value = self.value * other.value;
        let error = self.value.abs() * other.error + other.value.abs() * self.error + self.error * other.error;
        // 0·∞: one factor is exactly 0, the other has overflowed.
        let error = if error.is_nan() && !value.is_nan() { f64::INFINITY } else { error };
        Self { value, error }.rounded()
    }

    /// The output format's own rounding.
    pub(super) fn finished(self, output: Format) -> Expected {
        let reach = self.value.abs() + self.error;
        let bound = if reach.is_finite() { self.error + half_ulp(output, reach) } else { self.error };
        Expected { value: self.value, bound }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clamp_takes_in_what_lies_within() {
        let clamped = |value, error| {
            let Uncertain { value, error } = Uncertain { value, error }.clamped(-7.0, 7.0);
            (value, error)
        };
        assert_eq!(clamped(1.0, 0.5), (1.0, 0.5));
        assert_eq!(clamped(6.75, 0.5), (6.75, 0.5));
        assert_eq!(clamped(7.25, 0.5), (7.0, 0.25));
        assert_eq!((clamped(8.0, 0.5), clamped(-9.0, 0.5)), ((7.0, 0.0), (-7.0, 0.0)));
        assert_eq!((clamped(9.0, f64::INFINITY), clamped(0.0, f64::INFINITY)), ((7.0, 14.0), (0.0, 7.0)));
        assert_eq!(clamped(f64::NEG_INFINITY, f64::INFINITY), (-7.0, 0.0));
        assert!(clamped(f64::NAN, 0.0).0.is_nan());
    }
}
