//! What one block has to do.

use super::Layout;
use crate::format::Format;
use crate::path::cost::{Block, Constants, Cover};
pub(in crate::path) use crate::path::cost::{
    no_more as more_decoding, one_tail as tails, one_turn as turns, whole_width as widths,
};
use crate::path::mma_sync::{self, Work};
use crate::path::{Fusion, Variant};
use crate::problem::Problem;

/// What is held for more stages is not there as a cache.
pub(in crate::path) fn held_back(_: &Layout, _: &Variant, shared_bytes: u32, c: &Constants) -> f64 {
    1.0 + c.mma_crowded * f64::from(shared_bytes) / 131_072.0
}

/// The work of a block.
pub(in crate::path) fn block(
    layout: &Layout,
    problem: &Problem,
    variant: &Variant,
    shared_bytes: u32,
    cover: &Cover,
    c: &Constants,
) -> Block {
    let tile = variant.tile;
    let (passes, products) = match variant.fusion {
        Fusion::Interleaved => (1.0, 2.0),
        Fusion::Sequential => (2.0, 2.0),
        _ => (1.0, 1.0),
    };
    // In tiles of 64 rows of weights, as for the path `wgmma`.
    let rows = products * f64::from(tile.columns) / 64.0;
    // Of MXFP4 half of the scales that are copied are the neighbour's.
    let row_bytes = |format: Format| if format.is_coded() { 36.0 } else { 128.0 };
    let bytes = passes * row_bytes(problem.a_format()) * cover.rows + 64.0 * rows * row_bytes(problem.b_format());
    let decodes = |format: Format| if format.is_coded() { 1.0 } else { 0.25 };
    // Warps along the tokens each decode the weights for themselves.
    let weights = c.mma_decode * decodes(problem.b_format()) * rows * f64::from(layout.tokens);
    let tokens = if problem.a_format() == Format::Nvfp4 { c.mma_decode_token * cover.width * passes } else { 0.0 };
    let crowded = held_back(layout, variant, shared_bytes, c);
    let tensor = c.mma_tensor * cover.width * rows * crowded;
    let weights = weights * crowded;
    let decode = weights + tokens;
    let work = Work { passes, rows, bytes, tensor, decode, decode_waited_for: weights };
    mma_sync::block(layout, problem, variant, &work, cover, c)
}
