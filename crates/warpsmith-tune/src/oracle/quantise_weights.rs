//! Weights made NVFP4 under the scale of the least error, by search. Sums of squares are in one order, which is part of what is
//! held: of every fourth of a block's values each, then of these in pairs; blocks of a row one after the other.

use std::ops::RangeInclusive;

use warpsmith::internal::Raise;
use warpsmith::internal::build::QuantiseWeights;
use warpsmith::internal::format::{BLOCK, e2m1, e4m3};
use warpsmith::{Error, Result};

use super::quantise::{NAN_SCALE, code_of, scale_of_most};

/// What a scale that is tried is to the plain one, in quarters.
const TRIED: RangeInclusive<f64> = 2.0..=7.0;

/// What becomes of a matrix.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuantisedWeights {
    /// `[N, K/2]`.
    pub codes: Vec<u8>,
    /// `[N, K/16]`.
    pub scales: Vec<u8>,
    /// Of each row the sums of squares: of values, of errors, of the plain rule's errors.
    pub squares: Vec<[f64; 3]>,
}

/// `x`, rows of `k` values, each exactly as it is in its format, under a factor that a reader applies as `stored`.
///
/// # Errors
/// Data, if there are no whole rows of whole blocks.
pub fn quantise_weights(
    of: QuantiseWeights,
    k: usize,
    x: &[f32],
    factor: f32,
    stored: f32,
) -> Result<QuantisedWeights> {
    if k == 0 || !k.is_multiple_of(BLOCK) || !x.len().is_multiple_of(k) {
        return Err(Error::data(format!("{} values, rows of {k}: not whole rows of blocks of {BLOCK}", x.len())));
    }
    let mut all = QuantisedWeights::default();
    for row in x.chunks(k) {
        let mut squares = [0.0; 3];
        for block in row.chunks(BLOCK) {
            let (scale, by, of_block) = chosen(of, block, factor, stored);
            all.scales.push(scale);
            all.codes.extend(block.chunks(2).map(|pair| code_of(pair[0], by) | code_of(pair[1], by) << 4));
            squares.iter_mut().zip(of_block).for_each(|(sum, of_block)| *sum += of_block);
        }
        all.squares.push(squares);
    }
    Ok(all)
}

/// A block's scale, what its values are divided by, and its sums.
fn chosen(of: QuantiseWeights, block: &[f32], factor: f32, stored: f32) -> (u8, f32, [f64; 3]) {
    // As a reader computes it, rounded once.
    let step = |scale: u8| {
        let (scale, stored) = (f64::from(e4m3::decode(scale)), f64::from(stored));
        (if of.is_divided() { scale / stored } else { scale * stored }) as f32
    };
    let lost = |by: f32, step: f32| {
        let read = |x: &f32| (f64::from(e2m1::decode(code_of(*x, by))) * f64::from(step)) as f32;
        squares(block, |x| f64::from(*x) - f64::from(read(x)))
    };
    let plain = scale_of_most(block.iter().map(|x| x.abs()).fold(0.0, f32::max), factor);
    let by = (f64::from(e4m3::decode(plain)) * f64::from(factor)) as f32;
    let plain_error = lost(by, step(plain));
    let mut best = (plain, by, plain_error);
    if of.is_searched() {
        let quarters = |scale: u8| 4.0 * f64::from(e4m3::decode(scale)) / f64::from(e4m3::decode(plain));
        let mut near: Vec<u8> = (1..NAN_SCALE).filter(|scale| TRIED.contains(&quarters(*scale))).collect();
        // The nearest first, and of two that are as near the smaller.
        near.sort_by_key(|scale| (scale.abs_diff(plain), *scale));
        for scale in near {
            let error = lost(step(scale), step(scale));
            if error < best.2 {
                best = (scale, step(scale), error);
            }
        }
    }
    (best.0, best.1, [squares(block, |x| f64::from(*x)), best.2, plain_error])
}

fn squares(block: &[f32], of: impl Fn(&f32) -> f64) -> f64 {
    let mut lanes = [0.0; 4];
    for (at, x) in block.iter().enumerate() {
        lanes[at % 4] += of(x) * of(x);
    }
    (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])
}

#[cfg(test)]
mod tests {
    use warpsmith::format::Format;

    use super::*;

    /// 1 and 15 times 0.93: under the scale 1/6, 0.93 becomes 1 (6/6), or under 0.15625 0.9375.
    #[test]
    fn a_known_block() {
        let x: Vec<f32> = [1.0].into_iter().chain([0.93; 15]).collect();
        let plain = QuantiseWeights::new(Format::F32);
        let found = quantise_weights(plain, 16, &x, 1.0, 1.0).unwrap();
        // 1/6 is 0.171875 as e4m3, of which 6 are 1.03125.
        assert_eq!((found.scales[0], found.codes[0]), (0x23, 0x77));
        let [values, error, of_plain] = found.squares[0];
        assert!((values - (1.0 + 15.0 * 0.93f64.powi(2))).abs() < 1e-5 && error == of_plain);
        let searched = quantise_weights(plain.searched(), 16, &x, 1.0, 1.0).unwrap();
        assert_eq!((searched.scales[0], searched.codes[0], searched.squares[0][2]), (0x22, 0x77, error));
        assert!(searched.squares[0][1] < error / 10.0);
        // A reader that divides by what is exactly the reciprocal reads the same.
        let divided = quantise_weights(plain.searched().divided(), 16, &x, 0.5, 2.0).unwrap();
        assert_eq!(divided, quantise_weights(plain.searched(), 16, &x, 0.5, 0.5).unwrap());
        assert!(quantise_weights(plain, 24, &x, 1.0, 1.0).is_err());
    }
}
