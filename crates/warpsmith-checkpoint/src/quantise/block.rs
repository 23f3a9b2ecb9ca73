//! Scales and codes of 16 values.

use warpsmith::internal::format::{BLOCK, e2m1, e4m3};

use super::Scales;
use super::matrix::Squares;
use crate::weight::Factor;

/// The largest scale that is not NaN.
const LARGEST: u8 = 0x7E;
/// What a scale that is tried is to the plain one: with the second a block's largest value becomes 4 and less.
const TRIED: std::ops::RangeInclusive<f32> = 0.5..=1.75;

/// The factor of values with this largest magnitude, as `Nvfp4Tensor` has it.
pub(super) fn factor(amax: f32) -> f32 {
    if amax == 0.0 { 1.0 } else { (amax / (e2m1::MAX * e4m3::MAX)).max(f32::MIN_POSITIVE) }
}

/// How blocks under one factor become codes.
#[derive(Debug)]
pub(super) struct Rule {
    factor: f32,
    /// What a code of 1 stands for under each scale, as a reader computes it.
    steps: [f32; LARGEST as usize + 1],
    /// Under each plain scale those that are tried, the nearest first; nothing where only that one is.
    tried: Vec<Vec<u8>>,
}

/// A block, and what is lost in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Block {
    pub(super) scale: u8,
    /// Two a byte, the even one low.
    pub(super) codes: [u8; BLOCK / 2],
    pub(super) squares: Squares,
}

impl Rule {
    /// Under a factor that a reader applies as `stored`.
    pub(super) fn new(scales: Scales, factor: f32, stored: Factor) -> Self {
        let mut steps = [0.0; LARGEST as usize + 1];
        for (scale, step) in (0..).zip(&mut steps) {
            *step = stored.times(e4m3::decode(scale));
        }
        let tried = match scales {
            Scales::Largest => Vec::new(),
            Scales::Search => (0..=LARGEST).map(near).collect(),
        };
        Self { factor, steps, tried }
    }

    /// A block as it is stored.
    pub(super) fn block(&self, values: &[f32; BLOCK]) -> Block {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: this processor has it.
            return unsafe { self.block_by_eight(values) };
        }
        self.block_by_any(values)
    }

    /// The same operations, and so the same bits, of eight values at a time.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn block_by_eight(&self, values: &[f32; BLOCK]) -> Block {
        self.block_by_any(values)
    }

    #[inline(always)]
    fn block_by_any(&self, values: &[f32; BLOCK]) -> Block {
        let magnitudes = values.map(f32::abs);
        let amax = magnitudes.iter().fold(0.0, |largest: f32, value| largest.max(*value));
        let of_amax = match amax {
            0.0 => 1.0,
            _ => (amax / e2m1::MAX / self.factor).max(e4m3::MIN_SUBNORMAL),
        };
        let scale = e4m3::encode(of_amax);
        // The plain codes are those under the factor, the others those under what a reader makes of it.
        let by = e4m3::decode(scale) * self.factor;
        let plain = error(&magnitudes, by, self.steps[usize::from(scale)]);
        let mut best = (scale, by, plain);
        if amax != 0.0 {
            for tried in self.tried.get(usize::from(scale)).into_iter().flatten() {
                let step = self.steps[usize::from(*tried)];
                let error = error(&magnitudes, step, step);
                if error < best.2 {
                    best = (*tried, step, error);
                }
            }
        }
        let (scale, by, error) = best;
        let codes = codes(values, by);
        let values = sum_of_squares(|at| f64::from(magnitudes[at]));
        Block { scale, codes, squares: Squares { values, error, plain } }
    }
}

/// The scales that are tried beside a plain one, the nearest first.
fn near(plain: u8) -> Vec<u8> {
    let of = |scale: u8| e4m3::decode(scale) / e4m3::decode(plain);
    let mut all: Vec<u8> = (1..=LARGEST).filter(|scale| TRIED.contains(&of(*scale))).collect();
    all.sort_by_key(|scale| scale.abs_diff(plain));
    all
}

/// The nearest code of each value over a step, as e2m1 has it. Without a branch.
#[inline(always)]
fn codes(values: &[f32; BLOCK], step: f32) -> [u8; BLOCK / 2] {
    // Plain loops, which become vectors.
    let mut all = [0; BLOCK];
    for (code, value) in all.iter_mut().zip(values) {
        let magnitude = value.abs() / step;
        *code = value.to_bits() >> 28 & 8;
        *code += u32::from(magnitude > 0.25) + u32::from(magnitude >= 0.75);
        *code += u32::from(magnitude > 1.25) + u32::from(magnitude >= 1.75);
        *code += u32::from(magnitude > 2.5) + u32::from(magnitude >= 3.5) + u32::from(magnitude > 5.0);
    }
    let mut codes = [0; BLOCK / 2];
    for (byte, pair) in codes.iter_mut().zip(all.as_chunks::<2>().0) {
        *byte = (pair[0] | pair[1] << 4) as u8;
    }
    codes
}

/// The sum of squared errors of magnitudes, where each has the nearest code over `by`, and a reader multiplies that by `step`.
#[inline(always)]
fn error(magnitudes: &[f32; BLOCK], by: f32, step: f32) -> f64 {
    let mut found = [0.0; BLOCK];
    for (found, magnitude) in found.iter_mut().zip(magnitudes) {
        *found = nearest(*magnitude / by) * step;
    }
    sum_of_squares(|at| f64::from(magnitudes[at]) - f64::from(found[at]))
}

/// In an order that vectors have, and devices keep to: every fourth, then these in pairs.
#[inline(always)]
fn sum_of_squares(value: impl Fn(usize) -> f64) -> f64 {
    let mut lanes = [0.0; 4];
    for four in (0..BLOCK).step_by(4) {
        for (at, lane) in lanes.iter_mut().enumerate() {
            let value = value(four + at);
            *lane += value * value;
        }
    }
    (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])
}

/// What e2m1 makes of a magnitude.
#[inline(always)]
fn nearest(magnitude: f32) -> f32 {
    let mut found = if magnitude > 0.25 { 0.5 } else { 0.0 };
    found += if magnitude >= 0.75 { 0.5 } else { 0.0 };
    found += if magnitude > 1.25 { 0.5 } else { 0.0 };
    found += if magnitude >= 1.75 { 0.5 } else { 0.0 };
    found += if magnitude > 2.5 { 1.0 } else { 0.0 };
    found += if magnitude >= 3.5 { 1.0 } else { 0.0 };
    found + if magnitude > 5.0 { 2.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use warpsmith::format::{Format, Nvfp4Tensor};
    use warpsmith::internal::build::QuantiseWeights;
    use warpsmith_tune::oracle::quantise_weights::quantise_weights;

    use super::super::SCALES;
    use super::*;

    fn stored(factor: f32) -> [Factor; 2] {
        [Factor::Multiply(factor), Factor::Divide(1.0 / factor)]
    }

    /// Seeded blocks of several kinds: normal, uniform, with one value far out, tiny beside the tensor's largest.
    fn blocks(count: usize) -> Vec<[f32; BLOCK]> {
        let mut random = fastrand::Rng::with_seed(7);
        let mut block = |kind: usize| {
            let mut block = [0.0; BLOCK];
            for value in &mut block {
                let sum: f32 = (0..12).map(|_| random.f32()).sum();
                *value = match kind % 4 {
                    1 => random.f32() - 0.5,
                    3 => (sum - 6.0) * 1e-5,
                    _ => sum - 6.0,
                };
            }
            if kind % 4 == 2 {
                block[random.usize(..BLOCK)] *= 9.0;
            }
            block
        };
        (0..count).map(&mut block).collect()
    }

    fn amax(blocks: &[[f32; BLOCK]]) -> f32 {
        blocks.as_flattened().iter().fold(0.0, |largest: f32, value| largest.max(value.abs()))
    }

    #[test]
    fn the_plain_rule_is_that_of_the_core() {
        let blocks = blocks(400);
        let tensor = Nvfp4Tensor::quantise(blocks.len(), BLOCK, blocks.as_flattened()).unwrap();
        let factor = factor(amax(&blocks));
        assert_eq!(factor, tensor.tensor_scale());
        for stored in stored(factor) {
            let rule = Rule::new(Scales::Largest, factor, stored);
            for (at, block) in blocks.iter().enumerate() {
                let found = rule.block(block);
                assert_eq!(found.scale, tensor.scales()[at]);
                assert_eq!(found.codes, tensor.codes()[at * 8..][..8]);
                assert_eq!(found.squares.error, found.squares.plain);
            }
        }
    }

    /// What is said to be lost is what a reader has lost, and no scale at all loses less.
    #[test]
    fn a_search_finds_the_least_error_and_says_it() {
        let blocks = blocks(400);
        let factor = factor(amax(&blocks));
        for stored in stored(factor) {
            let rule = Rule::new(Scales::Search, factor, stored);
            let (mut sum, mut plain, mut beyond) = (0.0, 0.0, 0);
            for block in &blocks {
                let found = rule.block(block);
                assert!(found.squares.error <= found.squares.plain);
                let step = stored.times(e4m3::decode(found.scale));
                let lost = |codes: &[u8; 8], step: f32| -> f64 {
                    let value = |at: usize| e2m1::decode(codes[at / 2] >> (at % 2 * 4)) * step;
                    (0..BLOCK).map(|at| (f64::from(block[at]) - f64::from(value(at))).powi(2)).sum()
                };
                let read = lost(&found.codes, step);
                assert!((read - found.squares.error).abs() <= read * 1e-12, "{read} {}", found.squares.error);
                let of_all = (1..=LARGEST).map(|scale| {
                    let step = stored.times(e4m3::decode(scale));
                    lost(&codes(block, step), step)
                });
                let least = of_all.fold(f64::INFINITY, f64::min);
                beyond += usize::from(least < found.squares.error * (1.0 - 1e-9));
                (sum, plain) = (sum + found.squares.error, plain + found.squares.plain);
            }
            assert!(sum < 0.95 * plain, "{sum} {plain}");
            // A scale beyond those that are tried is hardly ever better.
            assert!(beyond <= blocks.len() / 100, "{beyond}");
        }
    }

    /// Which devices are held to: every bit, of sums too.
    #[test]
    fn the_oracle_says_the_same() {
        let mut blocks = blocks(400);
        // Ends of f32, zeros, and small multiples, under which errors are level.
        for (at, block) in (0..).zip(&mut blocks[..40]) {
            let most = [f32::MAX / 15.0, f32::MIN_POSITIVE, f32::from_bits(1), 0.0, 1.0][at % 5];
            *block = std::array::from_fn(|i| ((i * at) % 16) as f32 * if i % 3 == 0 { -most } else { most });
        }
        for factor in [factor(amax(&blocks)), factor(6.0), 0.125, f32::MIN_POSITIVE] {
            for (stored, scales) in
                stored(factor).into_iter().flat_map(|stored| SCALES.map(|scales| (stored, scales.0)))
            {
                let of = QuantiseWeights::new(Format::F32);
                let of = if scales == Scales::Search { of.searched() } else { of };
                let of = if matches!(stored, Factor::Divide(_)) { of.divided() } else { of };
                let expected = quantise_weights(of, BLOCK, blocks.as_flattened(), factor, stored.number()).unwrap();
                let rule = Rule::new(scales, factor, stored);
                for (at, block) in blocks.iter().enumerate() {
                    let found = rule.block(block);
                    let Squares { values, error, plain } = found.squares;
                    assert_eq!((found.scale, &found.codes[..]), (expected.scales[at], &expected.codes[at * 8..][..8]));
                    assert_eq!([values, error, plain].map(f64::to_bits), expected.squares[at].map(f64::to_bits));
                }
            }
        }
    }

    #[test]
    fn nearest_is_what_e2m1_has() {
        let mut random = fastrand::Rng::with_seed(3);
        let middles = [0.0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0, 7.0, f32::INFINITY];
        let beside = middles.iter().flat_map(|middle: &f32| [*middle, middle.next_up(), middle.next_down().abs()]);
        for value in beside.chain((0..1000).map(|_| random.f32() * 8.0)) {
            let code = e2m1::encode(value).unwrap();
            assert_eq!(nearest(value), e2m1::decode(code), "{value}");
            assert_eq!(codes(&[value; BLOCK], 1.0), [code | code << 4; BLOCK / 2], "{value}");
            assert_eq!(codes(&[-value; BLOCK], 1.0), [(code | 8) | (code | 8) << 4; BLOCK / 2], "{value}");
        }
    }

    #[test]
    fn zeros_and_the_largest_and_smallest() {
        let zeros = Rule::new(Scales::Search, 1.0, Factor::Multiply(1.0)).block(&[0.0; BLOCK]);
        assert_eq!((zeros.scale, zeros.codes, zeros.squares.error), (0x38, [0; 8], 0.0));
        for amax in [f32::MAX, f32::MIN_POSITIVE, f32::from_bits(1)] {
            let mut block = [0.0; BLOCK];
            block[5] = -amax;
            for stored in stored(factor(amax)) {
                let found = Rule::new(Scales::Search, factor(amax), stored).block(&block);
                assert!(
                    found.squares.error.is_finite() && found.squares.error <= found.squares.plain,
                    "{amax} {found:?}"
                );
            }
        }
    }
}
