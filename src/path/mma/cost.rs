//! What one block has to do.

use super::Layout;
use crate::format::Format;
use crate::path::cost::{Block, Constants, Cover, Widths, steps};
use crate::path::{Epilogue, Fusion, Variant};
use crate::problem::Problem;

/// Warpgroups of a block that take turns with the stages: all warps take every stage.
pub(in crate::path) fn turns(_: &Layout) -> u32 {
    1
}

/// The widths that a tile may be multiplied in: its own.
pub(in crate::path) fn widths(_: &Layout, _: &Variant) -> Widths {
    Widths::default()
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
    let turns = f64::from(layout.k);
    let places = f64::from(layout.places());
    let steps_per_stage = f64::from(tile.k) / 64.0;
    // What is held for more stages is not there as a cache.
    let crowded = 1.0 + c.mma_crowded * f64::from(shared_bytes) / 131_072.0;
    let tensor = c.mma_tensor * cover.width * rows * crowded;
    let weights = weights * crowded;
    Block {
        steps: steps(problem, variant),
        steps_per_stage,
        stages: f64::from(variant.stages),
        turns: 1.0,
        rotation: 1.0,
        tensor,
        decode: weights + tokens,
        ingress: bytes / c.mma_ingress,
        // Few warps do not fill the schedulers.
        serial: c.mma_chain * (tensor + weights) * (8.0 / (places * turns)).max(1.0),
        serial_per_stage: passes * c.mma_stage,
        loading: 0.0,
        latency: c.mma_latency,
        hold: c.mma_hold,
        start: c.mma_block,
        tail: cover.width * rows / (places / 8.0) * (c.mma_store_token + c.mma_reduce_token * (turns - 1.0)),
    }
}

/// No epilogue of this variant takes less: there is one.
pub(in crate::path) fn least_tail(
    _: &Layout,
    _: &Problem,
    _: &Variant,
    block: &Block,
    _: &Cover,
    _: &Constants,
) -> f64 {
    block.tail
}

/// What each epilogue takes for the result, beside what is in the work of a block.
pub(in crate::path) fn stores(
    _: &Layout,
    _: &Problem,
    _: &Variant,
    _: &Cover,
    _: &Constants,
) -> [f64; Epilogue::ALL.len()] {
    [0.0; Epilogue::ALL.len()]
}
