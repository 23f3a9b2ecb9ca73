//! The rows of tokens' experts added up: every step is an IEEE operation in a stated order, so that the bits are known.

use half::{bf16, f16};
use warpsmith::format::Format;
use warpsmith::internal::Raise;
use warpsmith::spec::Combine;
use warpsmith::{Error, Result};

use super::route::sigmoid;

/// Threads of a block, in warps of 32 lanes, and elements that each takes at a time: the order of a gate's sum.
const THREADS: usize = 128;
const LANES: usize = 32;
const WIDTH: usize = 8;

/// What is added up, each value exactly as it is in its format; empty where the problem has none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms<'a> {
    /// `[tokens · k, H]`.
    pub rows: &'a [f32],
    /// `[tokens, k]`.
    pub weights: &'a [f32],
    /// `[tokens, k]`.
    pub positions: &'a [i32],
    /// `[tokens, H]`.
    pub shared: &'a [f32],
    /// What the shared expert's gate multiplies: `[tokens, H]` and `[H]`.
    pub gate: (&'a [f32], &'a [f32]),
    /// `[tokens, H]`.
    pub residual: &'a [f32],
}

/// The result for `tokens` tokens, each value as it is in its format.
///
/// # Errors
/// Data, if `terms` have not so many elements as `combine` asks for.
pub fn combine(combine: &Combine, tokens: u32, terms: &Terms<'_>) -> Result<Vec<f32>> {
    let (tokens, k, hidden) = (tokens as usize, combine.rows_per_token() as usize, combine.hidden_size() as usize);
    let Terms { rows, weights, positions, shared, gate: (x, vector), residual } = *terms;
    let lengths = [
        (rows.len(), true, tokens * k * hidden),
        (weights.len(), combine.is_weighted(), tokens * k),
        (positions.len(), combine.is_placed(), tokens * k),
        (shared.len(), combine.has_shared(), tokens * hidden),
        (x.len(), combine.has_shared_gate(), tokens * hidden),
        (vector.len(), combine.has_shared_gate(), hidden),
        (residual.len(), combine.has_residual(), tokens * hidden),
    ];
    if lengths.iter().any(|(length, is_wanted, needed)| *length != if *is_wanted { *needed } else { 0 }) {
        return Err(Error::data(format!("{tokens} tokens of {combine}: another number of elements is given")));
    }
    let mut out = Vec::with_capacity(tokens * hidden);
    for token in 0..tokens {
        let of_token = token * hidden..(token + 1) * hidden;
        let gate = combine.has_shared_gate().then(|| gate(&x[of_token], vector));
        for column in 0..hidden {
            let mut sum = 0f32;
            for slot in token * k..(token + 1) * k {
                let row = if combine.is_placed() { usize::try_from(positions[slot]).ok() } else { Some(slot) };
                if let Some(row) = row.filter(|row| *row < tokens * k) {
                    let weight = if combine.is_weighted() { weights[slot] } else { 1.0 };
                    sum = weight.mul_add(rows[row * hidden + column], sum);
                }
            }
            let at = token * hidden + column;
            if combine.has_shared() {
                sum = gate.map_or_else(|| sum + shared[at], |gate| gate.mul_add(shared[at], sum));
            }
            if combine.has_residual() {
                sum += residual[at];
            }
            out.push(rounded(combine.out_format(), sum));
        }
    }
    Ok(out)
}

/// The sigmoid of a token's product with a vector, as `templates/simt/shared_gate/sigmoid.cuh` states it.
#[must_use]
pub fn gate(x: &[f32], vector: &[f32]) -> f32 {
    let mut of_threads = [0f32; THREADS];
    for (eight, (x, vector)) in x.chunks(WIDTH).zip(vector.chunks(WIDTH)).enumerate() {
        let sum = &mut of_threads[eight % THREADS];
        x.iter().zip(vector).for_each(|(x, w)| *sum = x.mul_add(*w, *sum));
    }
    let of_warps = of_threads.chunks(LANES).map(|lanes| {
        let mut lanes = lanes.to_vec();
        for distance in [16, 8, 4, 2, 1] {
            lanes = (0..LANES).map(|lane| lanes[lane] + lanes[lane ^ distance]).collect();
        }
        lanes[0]
    });
    let product = of_warps.reduce(|sum, warp| sum + warp).unwrap_or_default();
    if product.is_nan() { product } else { sigmoid(product) }
}

/// Rounded to nearest even.
#[must_use]
pub fn rounded(format: Format, value: f32) -> f32 {
    match format {
        Format::F16 => f16::from_f32(value).to_f32(),
        Format::Bf16 => bf16::from_f32(value).to_f32(),
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_added_in_their_order_and_those_that_are_not_there_left_out() {
        let of = Combine::new().hidden(8).k(3).out(Format::F32).weighted().placed().residual();
        let rows: Vec<f32> = (0..3).flat_map(|row| [[1.0, 1e8, -1e8][row]; 8]).collect();
        let terms =
            Terms { rows: &rows, weights: &[1.0; 3], positions: &[0, 1, 2], residual: &[0.5; 8], ..Terms::default() };
        // 1 + 1e8 is 1e8.
        assert_eq!(combine(&of, 1, &terms).unwrap(), [0.5; 8]);
        assert_eq!(combine(&of, 1, &Terms { positions: &[1, 2, 0], ..terms }).unwrap(), [1.5; 8]);
        assert_eq!(combine(&of, 1, &Terms { positions: &[0, -1, 3], ..terms }).unwrap(), [1.5; 8]);
        assert_eq!(combine(&of, 1, &Terms { weights: &[4.0, 0.0, 0.0], ..terms }).unwrap(), [4.5; 8]);
        assert!(combine(&of, 1, &Terms { shared: &[0.0; 8], ..terms }).is_err());
        let of = Combine::new().hidden(8).k(1).out(Format::F32).shared().shared_gate();
        let terms = Terms { rows: &[1.0; 8], shared: &[4.0; 8], gate: (&[1.0; 8], &[0.0; 8]), ..Terms::default() };
        assert_eq!(combine(&of, 1, &terms).unwrap(), [3.0; 8]);
        assert_eq!(combine(&of, 1, &Terms { gate: (&[1e9; 8], &[1.0; 8]), ..terms }).unwrap(), [5.0; 8]);
        assert!(combine(&of, 1, &Terms { gate: (&[f32::NAN; 8], &[1.0; 8]), ..terms }).unwrap()[0].is_nan());
        assert!(combine(&of, 1, &Terms { gate: (&[], &[]), ..terms }).is_err());
        assert_eq!(rounded(Format::Bf16, 1.0 + 1.0 / 256.0), 1.0);
    }
}
