//! What one block has to do. Nothing of it was measured: the figures are those of documents and of others' kernels on a B200
//! (docs/blackwell.md).

use super::geometry::Tcgen05Layout;
use crate::path::cost::{Block, Constants, Cover, steps};
pub(in crate::path) use crate::path::cost::{
    never_held_back as held_back, no_more as more_decoding, one_tail as tails, one_turn as turns, whole_width as widths,
};
use crate::path::{Rows, Variant};
use crate::problem::Problem;

/// The work of a block.
pub(in crate::path) fn block(
    layout: &Tcgen05Layout,
    problem: &Problem,
    variant: &Variant,
    _: u32,
    cover: &Cover,
    c: &Constants,
) -> Block {
    let products = f64::from(layout.block_products);
    let blocks = f64::from(layout.tile_blocks);
    // 128 rows × 64 of K of both operands, and of their scales, for each block. Of scales that both blocks of a pair have each
    // asks for half.
    let (rows, wide) = match variant.rows {
        Rows::Weights => (products, 1.0),
        Rows::Tokens => (1.0, products),
    };
    let width = f64::from(layout.width);
    let bytes = 36.0 * (rows * 128.0 + wide * width / blocks);
    // What the tensor cores read of shared memory: rows once where they stay in the collector, and columns once for a pair.
    let operands = 32.0 * (rows * 128.0 + products * width / blocks);
    let multiply = products * (width / 2.0).max(c.tcgen05_min).max(operands / products / c.tcgen05_operands);
    let copied = if layout.copy_warps > 0 { c.tcgen05_copy } else { 0.0 };
    let gathered = match variant.rows {
        _ if !layout.is_gathered => 0.0,
        Rows::Weights => c.tcgen05_gather * cover.width / blocks,
        Rows::Tokens => c.tcgen05_gather * 128.0,
    };
    let sums = products * width / if variant.rows == Rows::Tokens { 2.0 } else { 1.0 };
    Block {
        steps: steps(problem, variant),
        steps_per_stage: f64::from(variant.tile.k) / 64.0,
        stages: f64::from(variant.stages),
        turns: 1.0,
        rotation: 1.0,
        tensor: multiply * cover.width / f64::from(variant.tile.tokens),
        decode: 0.0,
        ingress: bytes / c.tcgen05_ingress,
        serial: multiply,
        serial_per_stage: c.tcgen05_stage,
        loading: copied + gathered,
        latency: c.tcgen05_latency,
        hold: 1.0,
        start: c.tcgen05_block,
        start_beside: 0.0,
        start_behind: 0.0,
        tail: c.tcgen05_tail + c.tcgen05_store * sums,
    }
}
