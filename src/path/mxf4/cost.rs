//! What one block has to do: a prediction. No device that has the path was measured. What the tensor cores do is computed
//! from the rated speed of RTX 5090 and GB10, the number of instructions is counted in the machine code; loading, waiting
//! and storing are as for the path `mma`, whose numbers are an H200's.

use super::Layout;
use crate::path::cost::{Block, Constants, Cover};
pub(in crate::path) use crate::path::cost::{
    never_held_back as held_back, no_more as more_decoding, one_tail as tails, one_turn as turns, whole_width as widths,
};
use crate::path::mma_sync::{self, Work};
use crate::path::{Fusion, Variant};
use crate::problem::Problem;

/// GHz of the SMs that have the path, at which their rated speed is.
const GHZ: f64 = 2.41;
/// Cycles of an SM's tensor cores for 64 rows × 64 of k and one token: each of the four takes 16 for an instruction, which is
/// 16 rows and 8 tokens.
const TENSOR: f64 = 2.0;
/// Cycles of a scheduler for an instruction of a warp that is not one of the tensor cores', dependences included.
const ISSUE: f64 = 2.0;
/// Bytes of a row's K block: codes and scales.
const ROW_BYTES: f64 = 36.0;

/// The work of a block.
pub(in crate::path) fn block(
    layout: &Layout,
    problem: &Problem,
    variant: &Variant,
    _: u32,
    cover: &Cover,
    c: &Constants,
) -> Block {
    let tile = variant.tile;
    let passes = if variant.fusion == Fusion::Sequential { 2.0 } else { 1.0 };
    let products = passes * f64::from(mma_sync::stage_products(variant.fusion));
    // In tiles of 64 rows of weights, as for the other paths.
    let rows = products * f64::from(tile.columns) / 64.0;
    let bytes = ROW_BYTES * (passes * cover.rows + 64.0 * rows);
    // The table's cycles are of another clock.
    let clock = c.ghz / GHZ;
    let tensor = TENSOR * clock * cover.width * rows;
    // Every warp loads fragments of 32 rows of either operand by three instructions, looks for signs and computes addresses.
    let (columns, tokens) = (f64::from(layout.columns), f64::from(layout.tokens));
    let fragments = columns * tokens * (products * (f64::from(tile.columns) / columns / 32.0).ceil())
        + columns * tokens * passes * (cover.width / tokens / 32.0).ceil();
    let decode = ISSUE * clock * 8.0 * fragments / 4.0;
    let work = Work { passes, rows, bytes, tensor, decode, decode_waited_for: decode };
    mma_sync::block(layout, problem, variant, &work, cover, c)
}
