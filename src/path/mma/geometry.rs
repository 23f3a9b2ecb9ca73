//! The path `mma`: warps along columns, tokens and K of a tile; stages of tokens and weights as they are given.

use crate::format::Format;
use crate::path::geometry::{Geometry, Grid, K_BLOCK, rows_bytes};
use crate::path::mma_sync::{self, WarpGrid};
use crate::path::{Layout, Tile, Variant};
use crate::problem::Problem;

/// Registers that a thread needs beside its accumulators: fragments, addresses, loop state; some more where a stage is so
/// deep that the compiler has more of it under way.
fn working_registers(tile: Tile) -> u32 {
    if tile.k <= K_BLOCK { 96 } else { 104 }
}

/// Sizes of a block.
pub(in crate::path) fn geometry(problem: &Problem, variant: &Variant) -> Geometry {
    let Tile { tokens, columns, k } = variant.tile;
    let warps = WarpGrid::of(variant.tile);
    let stage_bytes = rows_bytes(problem.a_format(), tokens, k)
        + mma_sync::stage_products(variant.fusion) * rows_bytes(problem.b_format(), columns, k);
    let accumulators = warps.accumulators(variant);
    // NVFP4 tokens are decoded once a stage, into a tile of 16-bit values behind the stages.
    let decoded = if problem.a_format() == Format::Nvfp4 { rows_bytes(Format::F16, tokens, k) } else { 0 };
    let shared_bytes = variant.stages.saturating_mul(stage_bytes).saturating_add(decoded);
    Geometry {
        threads: warps.threads(),
        stage_bytes,
        shared_bytes: shared_bytes.max(warps.handed_over(variant)),
        accumulators,
        registers: accumulators + working_registers(variant.tile),
        blocks_per_sm: 1,
        layout: Layout::Mma(warps),
    }
}

/// How the blocks lie in the grid.
pub(in crate::path) fn grid(_: &Variant) -> Grid {
    mma_sync::GRID
}

/// Whether its kernels wait for what came before by themselves, so that they may begin under it: they do not.
pub(in crate::path) fn can_depend() -> bool {
    false
}
