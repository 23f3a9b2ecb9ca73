//! Rows made NVFP4, as far as they are known before.

use warpsmith::format::Format;
use warpsmith::internal::Raise;
use warpsmith::internal::format::{BLOCK, e2m1, e4m3};
use warpsmith::{Error, Result};

use super::row::{Row, ends};
use crate::oracle::coded::RightScales;
use crate::oracle::expected::half_ulp;
use crate::oracle::quantise::{NAN_SCALE, code_of, own_factor, quantised_block};
use crate::oracle::{Expected, Matrix, Reference};

/// Numbers at most that the largest of h may be: each has a factor of its own.
const LARGEST_MAX: usize = 64;

/// The whole tensor `x` quantised with the factor of its own maximum: code times block scale, and that factor.
pub(super) fn coded(x: &Matrix<'_>) -> Result<(Matrix<'static>, f32)> {
    let factor = own_factor(x.data());
    let values = x.data().chunks(BLOCK).flat_map(|block| {
        let (scale, codes) = quantised_block(block, factor);
        let value = move |code: u8| e4m3::decode(scale) * e2m1::decode(code);
        codes.flat_map(move |pair| [value(pair & 15), value(pair >> 4)])
    });
    Ok((Matrix::new(x.rows(), x.k(), values.collect::<Vec<_>>())?, factor))
}

/// The factors that all of h together may have: its elements are numbers of `format`.
///
/// # Errors
/// Data, if an element may be an infinity or a number, or too little is known of the largest.
pub(super) fn factors<'a>(all: impl Iterator<Item = &'a Reference>, format: Format) -> Result<Vec<f32>> {
    let (mut least, mut most) = (0f64, 0f64);
    for h in all.flat_map(Reference::elements) {
        let [low, high] = ends(h, format)?;
        if low.is_finite() {
            least = least.max(if low * high > 0.0 { low.abs().min(high.abs()) } else { 0.0 });
            most = most.max(low.abs()).max(high.abs());
        }
    }
    let mut factors = Vec::new();
    let mut largest = least;
    while largest <= most {
        if factors.len() == LARGEST_MAX {
            return Err(Error::data(format!("the largest of h is {least} to {most}: its NVFP4 has no bound")));
        }
        factors.push(own_factor(&[largest as f32]));
        largest += 2.0 * half_ulp(format, largest);
    }
    factors.dedup();
    Ok(factors)
}

impl Row {
    /// Quantised under a factor of all rows, in units of it; h are numbers of `format`.
    ///
    /// # Errors
    /// Data, if one of them may be an infinity or a number.
    pub(super) fn coded(h: &[Expected], format: Format, factor: f32) -> Result<Self> {
        let mut values = Vec::with_capacity(h.len());
        for block in h.chunks(BLOCK) {
            let ends = block.iter().map(|h| ends(h, format)).collect::<Result<Vec<_>>>()?;
            let scales = right_scales(&ends, factor);
            values.extend(ends.iter().map(|ends| within(*ends, &scales, factor)));
        }
        Ok(Self { values, factor: 1.0, grain: None, is_e4m3: false })
    }
}

/// The scales that a block of such numbers may have.
fn right_scales(ends: &[[f64; 2]], factor: f32) -> Vec<u8> {
    let expected = |[low, high]: &[f64; 2]| match low == high || low.is_nan() {
        true => Expected { value: *low, bound: 0.0 },
        false => Expected { value: (low + high) / 2.0, bound: (high - low) / 2.0 },
    };
    let right = RightScales::of(&ends.iter().map(expected).collect::<Vec<_>>(), factor);
    (0..=NAN_SCALE).filter(|scale| right.accepts(*scale)).collect()
}

/// Code times scale of a number between these, under one of the scales.
fn within([low, high]: [f64; 2], scales: &[u8], factor: f32) -> Expected {
    let mut all = [f64::INFINITY, f64::NEG_INFINITY];
    for scale in scales.iter().map(|scale| e4m3::decode(*scale)) {
        if scale.is_nan() {
            return Expected { value: f64::NAN, bound: f64::NAN };
        }
        let divisor = (f64::from(scale) * f64::from(factor)) as f32;
        let value = |end: f64| f64::from(scale * e2m1::decode(code_of(end as f32, divisor)));
        all = [all[0].min(value(low)), all[1].max(value(high))];
    }
    Expected { value: (all[0] + all[1]) / 2.0, bound: (all[1] - all[0]) / 2.0 }
}

/// What lies within one of two bounds.
pub(super) fn hull(a: Expected, b: Expected) -> Expected {
    let ends = |of: Expected| [of.value - of.bound, of.value + of.bound];
    let [[low, high], [other_low, other_high]] = [ends(a), ends(b)];
    let (low, high) = (low.min(other_low), high.max(other_high));
    match a == b || a.value.is_nan() || a.value.is_infinite() {
        true => a,
        false => Expected { value: (low + high) / 2.0, bound: (high - low) / 2.0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::layer::row::tests::drawn;

    /// Whatever h is within its bounds, what becomes of it is within those of a row under one of the factors.
    #[test]
    fn rows_are_within_their_bounds() {
        let mut rng = fastrand::Rng::with_seed(9);
        let (mut known, mut uncertain, mut several, mut refused) = (0, 0, 0, 0);
        for trial in 0..2000 {
            let format = if trial % 2 == 0 { Format::F16 } else { Format::Bf16 };
            let off = [0.0, 1e-6, 1e-3, 2e-2][trial / 2 % 4];
            let (row, x) = drawn(&mut rng, off, format);
            let h = Reference::new(1, 64, format, row.clone()).unwrap();
            let Ok(factors) = factors([&h].into_iter(), format) else {
                refused += 1;
                continue;
            };
            several += usize::from(factors.len() > 1);
            let (found, factor) = coded(&Matrix::new(1, 64, x).unwrap()).unwrap();
            assert!(factors.contains(&factor), "{trial}: {factor} {factors:?}");
            let row = Row::coded(&row, format, factor).unwrap();
            for (at, (found, expected)) in found.data().iter().zip(&row.values).enumerate() {
                if expected.bound == 0.0 {
                    known += 1
                } else {
                    uncertain += 1
                }
                let distance = (f64::from(*found) - expected.value).abs();
                assert!(distance <= expected.bound, "{trial} {at}: {found} {expected:?}");
            }
        }
        let counts = [known, uncertain, several, refused];
        assert!(counts.iter().all(|count| *count > 50) && known > 2 * uncertain, "{counts:?}");
    }

    #[test]
    fn what_is_no_number_keeps_its_place() {
        let mut h = vec![Expected { value: 1.0, bound: 0.0 }; 64];
        h[3] = Expected { value: f64::INFINITY, bound: 0.0 };
        h[21] = Expected { value: f64::NAN, bound: f64::NAN };
        let reference = Reference::new(1, 64, Format::F16, h.clone()).unwrap();
        assert_eq!(factors([&reference].into_iter(), Format::F16).unwrap(), [own_factor(&[1.0])]);
        let row = Row::coded(&h, Format::F16, own_factor(&[1.0])).unwrap();
        assert!(row.values[16..32].iter().all(|value| value.value.is_nan()));
        assert_eq!((row.values[3].value, row.values[0].value, row.values[40].value), (2688.0, 2688.0, 2688.0));
        h[5] = Expected { value: 65500.0, bound: 32.0 };
        assert!(Row::coded(&h, Format::F16, 1.0).map(|_| ()).unwrap_err().is_data());
        let unknown = Reference::new(1, 1, Format::F16, vec![Expected { value: 1.0, bound: 0.5 }]).unwrap();
        let error = factors([&unknown].into_iter(), Format::F16).unwrap_err();
        assert!(error.is_data() && error.to_string().contains("the largest of h is 0.5 to 1.5"), "{error}");
    }
}
