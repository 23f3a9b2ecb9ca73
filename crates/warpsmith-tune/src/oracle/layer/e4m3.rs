//! Rows made e4m3, as far as they are known before.

use warpsmith::Result;
use warpsmith::format::Format;
use warpsmith::internal::format::e4m3;

use super::row::{Row, ends};
use crate::oracle::quantise::{e4m3_of, factor_of};
use crate::oracle::{Expected, Matrix, Products, grain};

/// Half of the distance of neighbours, relative to numbers from 2⁻⁶ on, and absolute below.
const HALF_STEP: f64 = 1.0 / 16.0;
const SMALL_HALF_STEP: f64 = 1.0 / 1024.0;
/// What the factor and the quotient round, both in f32.
const ROUNDINGS: f64 = 1.0 / (1 << 23) as f64;

/// `x`, each row quantised, times weights that are e4m3 already: sums as tensor cores have them, times the rows' factors.
///
/// # Errors
/// Those of [`Products::new`].
pub(super) fn e4m3_products(x: &Matrix<'_>, weights: &Matrix<'_>) -> Result<Products> {
    let factors: Vec<f32> = (0..x.rows()).map(|row| factor_of(x.row(row))).collect();
    let byte = |row: usize, x: &f32| e4m3::decode(e4m3_of(*x, factors[row]));
    let values = (0..x.rows()).flat_map(|row| x.row(row).iter().map(move |x| byte(row, x)));
    let rounded = Matrix::new(x.rows(), x.k(), values.collect::<Vec<_>>())?;
    let mut products = Products::new(&rounded, weights)?.cut_in_chunks(&rounded, weights);
    products.scale_rows(&factors.iter().map(|factor| f64::from(*factor)).collect::<Vec<_>>());
    Ok(products)
}

impl Row {
    /// Quantised; h are numbers of `format`.
    ///
    /// # Errors
    /// Data, if one of them may be an infinity or a number: what becomes of it has no bound.
    pub(super) fn quantised(h: &[Expected], format: Format) -> Result<Self> {
        // Infinities become NaN, too.
        let of = |[low, high]: [f64; 2]| if low.is_infinite() { [f64::NAN; 2] } else { [low, high] };
        let ends = h.iter().map(|h| ends(h, format).map(of)).collect::<Result<Vec<_>>>()?;
        // The largest magnitude, at least and at most, of those that are numbers.
        let numbers = || ends.iter().filter(|[low, _]| !low.is_nan());
        let least = numbers().map(|[low, high]| if low * high > 0.0 { low.abs().min(high.abs()) } else { 0.0 });
        let most = numbers().map(|[low, high]| low.abs().max(high.abs())).fold(0.0, f64::max);
        let least = least.fold(0.0, f64::max);
        let [of_least, factor] = [least, most].map(|end| factor_of(&[end as f32]));
        // The factor of zeros is 1, and no less than that of others.
        if of_least != factor || (least == 0.0 && most > 0.0) {
            let values = ends.iter().map(|ends| within(*ends, f64::from(factor))).collect();
            return Ok(Self { values, factor: 1.0, grain: None, is_e4m3: true });
        }
        let byte = |end: f64| f64::from(e4m3::decode(e4m3_of(end as f32, factor)));
        let between = |[low, high]: [f64; 2]| Expected { value: (low + high) / 2.0, bound: (high - low) / 2.0 };
        let values: Vec<_> = ends.iter().map(|ends| between(ends.map(byte))).collect();
        let is_known = values.iter().all(|value| value.bound == 0.0);
        let grain = is_known.then(|| grain(values.iter().map(|value| value.value)));
        Ok(Self { values, factor: factor.into(), grain, is_e4m3: true })
    }
}

/// What a number between these becomes, under a factor that is not known, but at most this.
fn within([low, high]: [f64; 2], factor: f64) -> Expected {
    let most = low.abs().max(high.abs());
    let off = f64::max(HALF_STEP * most, SMALL_HALF_STEP * factor) + ROUNDINGS * most;
    Expected { value: (low + high) / 2.0, bound: (high - low) / 2.0 + off }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::layer::row::tests::drawn;

    /// Whatever h is within its bounds, what becomes of it is within those of the row.
    #[test]
    fn a_row_is_within_its_bounds() {
        let mut rng = fastrand::Rng::with_seed(8);
        let (mut known, mut bounded, mut without_a_factor) = (0, 0, 0);
        for trial in 0..3000 {
            let format = if trial % 2 == 0 { Format::F16 } else { Format::Bf16 };
            // From nothing but the format's rounding to what moves the largest.
            let off = [0.0, 1e-6, 1e-4, 1e-2][trial / 2 % 4];
            let (expected, h) = drawn(&mut rng, off, format);
            let row = Row::quantised(&expected, format).unwrap();
            match row.grain {
                Some(_) => known += 1,
                None if row.factor == 1.0 => without_a_factor += 1,
                None => bounded += 1,
            }
            let factor = factor_of(&h);
            for (at, (h, expected)) in h.iter().zip(&row.values).enumerate() {
                let found = f64::from(e4m3::decode(e4m3_of(*h, factor))) * f64::from(factor) / row.factor;
                let distance = (found - expected.value).abs();
                assert!(distance <= expected.bound * (1.0 + 1e-12), "{trial} {at}: {h} {found} {expected:?}");
            }
        }
        assert!(
            [known, bounded, without_a_factor].iter().all(|count| *count > 50),
            "{known} {bounded} {without_a_factor}"
        );
    }

    /// The factor of zeros is 1, as that of 448 is, and not as those between.
    #[test]
    fn a_row_that_may_be_zeros_has_no_factor_that_is_known() {
        let row = Row::quantised(&[Expected { value: 224.0, bound: 224.0 }; 64], Format::F16).unwrap();
        assert!(row.grain.is_none() && row.values[0].bound > 224.0, "{:?}", row.values[0]);
        let zeros = Row::quantised(&[Expected { value: 0.0, bound: 0.0 }; 64], Format::F16).unwrap();
        assert_eq!((zeros.factor, zeros.values[0].value, zeros.grain), (1.0, 0.0, Some(f64::INFINITY)));
    }

    #[test]
    fn what_is_no_number_becomes_nan_and_counts_for_no_factor() {
        let mut h = vec![Expected { value: 1.0, bound: 0.0 }; 64];
        let plain = Row::quantised(&h, Format::F16).unwrap();
        h[3] = Expected { value: f64::NAN, bound: f64::NAN };
        h[5] = Expected { value: 70000.0, bound: 32.0 };
        h[7] = Expected { value: f64::NEG_INFINITY, bound: 0.0 };
        let row = Row::quantised(&h, Format::F16).unwrap();
        assert_eq!(row.factor, plain.factor);
        for (at, value) in row.values.iter().enumerate() {
            assert!(if [3, 5, 7].contains(&at) { value.value.is_nan() } else { value.value == 448.0 }, "{at}");
        }
        h[9] = Expected { value: 65500.0, bound: 32.0 };
        let error = Row::quantised(&h, Format::F16).map(|_| ()).unwrap_err();
        assert!(error.is_data() && error.to_string().contains("may be beyond f16"), "{error}");
    }
}
