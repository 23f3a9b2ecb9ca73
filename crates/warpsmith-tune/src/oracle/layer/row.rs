//! A row of h as the last product takes it, and what is known of its elements.

use warpsmith::format::Format;
use warpsmith::internal::Raise;
use warpsmith::{Error, Result};

use crate::oracle::expected::{half_ulp, largest_finite};
use crate::oracle::finish::Sum;
use crate::oracle::{CHUNK, Expected};

/// A row of h as the last product takes it.
pub(super) struct Row {
    /// In units of the factor.
    pub(super) values: Vec<Expected>,
    pub(super) factor: f64,
    /// The least power of two that all are multiples of, where each is known.
    pub(super) grain: Option<f64>,
    pub(super) is_e4m3: bool,
}

impl Row {
    /// As it is.
    pub(super) fn plain(h: &[Expected]) -> Self {
        Self { values: h.to_vec(), factor: 1.0, grain: None, is_e4m3: false }
    }

    /// Its product with a row of weights, whose grain is given.
    pub(super) fn times(&self, weights: &[f32], of_weights: f64) -> Sum {
        let Self { values, factor, grain, is_e4m3 } = self;
        let sum = super::sum(values, weights).times(*factor);
        match grain {
            _ if !is_e4m3 => sum,
            None => sum.cut(f64::INFINITY),
            Some(grain) => {
                let size = |(h, w): (&Expected, &f32)| (h.value * f64::from(*w)).abs();
                let chunks = values.chunks(CHUNK).zip(weights.chunks(CHUNK));
                let chunk = chunks.map(|(h, w)| h.iter().zip(w).map(size).sum()).fold(0.0, f64::max);
                sum.cut(if chunk == 0.0 { 0.0 } else { chunk / (grain * of_weights) })
            }
        }
    }
}

/// The least and the largest number of a format that an element may be, which is NaN or an infinity where it is that.
///
/// # Errors
/// Data, if it may be an infinity or a number: what becomes of it has no bound.
pub(super) fn ends(h: &Expected, format: Format) -> Result<[f64; 2]> {
    let Expected { value, bound } = *h;
    let (most, largest) = (value.abs() + bound, largest_finite(format));
    match () {
        () if value.is_nan() => return Ok([value; 2]),
        () if value.is_infinite() || value.abs() - bound > largest => return Ok([f64::INFINITY.copysign(value); 2]),
        () if most <= largest => {}
        () => {
            return Err(Error::data(format!(
                "h = {value} ± {bound:e} may be beyond {format}: rounded it has no bound"
            )));
        }
    }
    let step = |end: f64| 2.0 * half_ulp(format, end.abs());
    let (low, high) = (value - bound, value + bound);
    Ok([(low / step(low)).ceil() * step(low), (high / step(high)).floor() * step(high)])
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::oracle::combine::rounded;

    /// A row of h, known up to this part of each element and the format's rounding; and one that lies within that.
    pub(in crate::oracle::layer) fn drawn(
        rng: &mut fastrand::Rng,
        off: f64,
        format: Format,
    ) -> (Vec<Expected>, Vec<f32>) {
        let exact: Vec<f64> = (0..64)
            .map(|_| f64::from(rng.f32() - 0.5) * 2f64.powi(-rng.i32(0..12)) * f64::from(u8::from(rng.u8(..8) > 0)))
            .collect();
        let expected = |x: &f64| {
            let error = off * x.abs();
            Expected { value: *x, bound: error + half_ulp(format, x.abs() + error) }
        };
        let mut sign = || [-1.0, 0.0, 1.0][rng.usize(..3)];
        let h = exact.iter().map(|x| rounded(format, (x + sign() * off * x.abs()) as f32)).collect();
        (exact.iter().map(expected).collect(), h)
    }
}
