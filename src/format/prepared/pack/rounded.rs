//! Blocks of weights that become e4m3, and the factors of their rows.

use super::super::e4m3::{code_word, codes_of, e4m3_byte, exp2, row_exponent, scale_byte, scale_of};
use super::{
    Block, CODE_BYTES, PAIRS, PreparedLayout, QUAD, STEPS, Segment, Unpacked, Weights, no_scale, settle_signs, words,
};
use crate::error::{Error, Result};

/// Words and scale bytes of a thread.
const THREAD_CODE_BYTES: usize = CODE_BYTES / (PAIRS * QUAD);
const THREAD_SCALE_BYTES: usize = 2;
/// Steps of 32 along K of an expanded block.
const EXPANDED_STEPS: usize = 2;

/// The exponents of rows, `[groups, products, n]`; none where kernels take no factors of rows.
pub(super) fn exponents<W: Weights>(layout: &PreparedLayout, operands: &[W]) -> Vec<i32> {
    let n = layout.n() as usize;
    let exponent = |index: usize| {
        let (group, operand, row) = (index / (operands.len() * n), &operands[index / n % operands.len()], index % n);
        let depths = 0..layout.blocks_per_tile() as usize;
        row_exponent(depths.flat_map(|depth| operand.scales(layout, group * n + row, depth)).copied())
    };
    (0..layout.row_factors()).map(exponent).collect()
}

pub(super) fn write_factors(exponents: &[i32], bytes: &mut [u8]) {
    for (factor, exponent) in bytes.chunks_exact_mut(4).zip(exponents) {
        factor.copy_from_slice(&exp2(*exponent).to_le_bytes());
    }
}

/// The exponents of all factors.
pub(super) fn read_factors(bytes: &[u8]) -> Result<Vec<i32>> {
    let exponent_of = |bits: u32| {
        let exponent = (bits >> 23) as i32 - 127;
        if (-15..=3).contains(&exponent) && f32::from_bits(bits) == exp2(exponent) {
            return Ok(exponent);
        }
        Err(Error::data(format!("{} is no factor of a row of prepared weights", f32::from_bits(bits))))
    };
    words(bytes).map(exponent_of).collect()
}

/// Where the exponent of a row of a product is, the row being counted through all groups.
fn exponent_index(layout: &PreparedLayout, product: usize, row: usize) -> usize {
    let (n, products) = (layout.n() as usize, layout.products() as usize);
    (row / n * products + product) * n + row % n
}

/// Thread `4 · pair + t` has the block scale t of its two rows, and the 16 codes under it.
pub(super) fn pack_block<W: Weights>(
    layout: &PreparedLayout,
    operands: &[W],
    exponents: &[i32],
    block: Block,
    bytes: &mut [u8],
) {
    let (codes, scales) = bytes.split_at_mut(CODE_BYTES);
    let threads = codes.chunks_exact_mut(THREAD_CODE_BYTES).zip(scales.chunks_exact_mut(THREAD_SCALE_BYTES));
    for (thread, (codes, scales)) in threads.enumerate() {
        let (pair, t) = (thread / QUAD, thread % QUAD);
        for (half, place) in block.rows(layout, pair).into_iter().enumerate() {
            scales[half] = scale_byte(0, 0);
            let Some((product, row)) = place else { continue };
            let segment = Segment::settled(layout, &operands[product], row, block.depth, settle_signs);
            scales[half] = scale_byte(segment.scales[t], exponents[exponent_index(layout, product, row)]);
            for (word, codes) in codes[8 * half..][..8].chunks_exact_mut(4).zip(words(&segment.codes[8 * t..][..8])) {
                word.copy_from_slice(&code_word(codes).to_le_bytes());
            }
        }
    }
}

/// The same as values: thread `4 · pair + t` has, in each of two steps, four of its low row, four of its high one, and again.
pub(super) fn expand_block<W: Weights>(
    layout: &PreparedLayout,
    operands: &[W],
    exponents: &[i32],
    block: Block,
    bytes: &mut [u8],
) {
    let step_bytes = bytes.len() / EXPANDED_STEPS;
    for thread in 0..PAIRS * QUAD {
        let (pair, t) = (thread / QUAD, thread % QUAD);
        for (half, place) in block.rows(layout, pair).into_iter().enumerate() {
            let Some((product, row)) = place else { continue };
            let segment = Segment::settled(layout, &operands[product], row, block.depth, settle_signs);
            let exponent = exponents[exponent_index(layout, product, row)];
            for (i, codes) in segment.codes[8 * t..][..8].iter().enumerate() {
                let (step, four, first) = (i / 4, i / 2 % 2, i % 2 * 2);
                let to = step * step_bytes + thread * THREAD_CODE_BYTES + (2 * four + half) * 4 + first;
                for (byte, code) in bytes[to..to + 2].iter_mut().zip([codes & 15, codes >> 4]) {
                    *byte = e4m3_byte(code, segment.scales[t], exponent);
                }
            }
        }
    }
}

pub(super) fn unpack_block(
    layout: &PreparedLayout,
    operands: &mut [Unpacked],
    exponents: &[i32],
    block: Block,
    bytes: &[u8],
) -> Result<()> {
    let k = layout.k() as usize;
    let (codes, scales) = bytes.split_at(CODE_BYTES);
    let threads = codes.chunks_exact(THREAD_CODE_BYTES).zip(scales.chunks_exact(THREAD_SCALE_BYTES));
    for (thread, (codes, scales)) in threads.enumerate() {
        let (pair, t) = (thread / QUAD, thread % QUAD);
        for (half, place) in block.rows(layout, pair).into_iter().enumerate() {
            let Some((product, row)) = place else { continue };
            let exponent = exponents[exponent_index(layout, product, row)];
            let scale =
                scale_of(scales[half], exponent).ok_or_else(|| no_scale(layout, block, product, row, scales[half]))?;
            let operand = &mut operands[product];
            operand.scales[row * (k / 16) + block.depth * STEPS + t] = scale;
            let to = &mut operand.codes[row * (k / 2) + block.depth * 32 + 8 * t..][..8];
            for (to, word) in to.chunks_exact_mut(4).zip(words(&codes[8 * half..][..8])) {
                to.copy_from_slice(&codes_of(word).to_le_bytes());
            }
        }
    }
    Ok(())
}
