//! The rows of tokens' experts added up: every step is an IEEE operation in a stated order, so that the bits are known.

use half::{bf16, f16};
use warpsmith::format::Format;
use warpsmith::internal::Raise;
use warpsmith::spec::Combine;
use warpsmith::{Error, Result};

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
    /// `[tokens, H]`.
    pub residual: &'a [f32],
}

/// The result for `tokens` tokens, each value as it is in its format.
///
/// # Errors
/// Data, if `terms` have not so many elements as `combine` asks for.
pub fn combine(combine: &Combine, tokens: u32, terms: &Terms<'_>) -> Result<Vec<f32>> {
    let (tokens, k, hidden) = (tokens as usize, combine.rows_per_token() as usize, combine.hidden_size() as usize);
    let Terms { rows, weights, positions, shared, residual } = *terms;
    let lengths = [
        (rows.len(), true, tokens * k * hidden),
        (weights.len(), combine.is_weighted(), tokens * k),
        (positions.len(), combine.is_placed(), tokens * k),
        (shared.len(), combine.has_shared(), tokens * hidden),
        (residual.len(), combine.has_residual(), tokens * hidden),
    ];
    if lengths.iter().any(|(length, is_wanted, needed)| *length != if *is_wanted { *needed } else { 0 }) {
        return Err(Error::data(format!("{tokens} tokens of {combine}: another number of elements is given")));
    }
    let mut out = Vec::with_capacity(tokens * hidden);
    for token in 0..tokens {
        for column in 0..hidden {
            let mut sum = 0f32;
            for slot in token * k..(token + 1) * k {
                let row = if combine.is_placed() { usize::try_from(positions[slot]).ok() } else { Some(slot) };
                if let Some(row) = row.filter(|row| *row < tokens * k) {
                    let weight = if combine.is_weighted() { weights[slot] } else { 1.0 };
                    sum = weight.mul_add(rows[row * hidden + column], sum);
                }
            }
            let added = [(combine.has_shared(), shared), (combine.has_residual(), residual)];
            for (_, rows) in added.into_iter().filter(|(has, _)| *has) {
                sum += rows[token * hidden + column];
            }
            out.push(rounded(combine.out_format(), sum));
        }
    }
    Ok(out)
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
        let terms = Terms { rows: &rows, weights: &[1.0; 3], positions: &[0, 1, 2], residual: &[0.5; 8], shared: &[] };
        // 1 + 1e8 is 1e8.
        assert_eq!(combine(&of, 1, &terms).unwrap(), [0.5; 8]);
        assert_eq!(combine(&of, 1, &Terms { positions: &[1, 2, 0], ..terms }).unwrap(), [1.5; 8]);
        assert_eq!(combine(&of, 1, &Terms { positions: &[0, -1, 3], ..terms }).unwrap(), [1.5; 8]);
        assert_eq!(combine(&of, 1, &Terms { weights: &[4.0, 0.0, 0.0], ..terms }).unwrap(), [4.5; 8]);
        assert!(combine(&of, 1, &Terms { shared: &[0.0; 8], ..terms }).is_err());
        assert_eq!(rounded(Format::Bf16, 1.0 + 1.0 / 256.0), 1.0);
    }
}
