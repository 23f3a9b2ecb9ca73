//! The path `mxf4`: warps as for `mma`; stages of codes and scales.

use crate::path::geometry::{Geometry, Grid, rows_bytes};
use crate::path::mma_sync::{self, WarpGrid};
use crate::path::{Layout, Tile, Variant};
use crate::problem::Problem;

/// Registers that a thread needs beside its accumulators: fragments of 32 columns of each product and of twice 32 tokens,
/// addresses, loop state.
const WORKING_REGISTERS: u32 = 80;

/// Sizes of a block.
pub(in crate::path) fn geometry(problem: &Problem, variant: &Variant) -> Geometry {
    let Tile { tokens, columns, k } = variant.tile;
    let warps = WarpGrid::of(variant.tile);
    let stage_bytes = rows_bytes(problem.a_format(), tokens, k)
        + mma_sync::stage_products(variant.fusion) * rows_bytes(problem.b_format(), columns, k);
    let accumulators = warps.accumulators(variant);
    Geometry {
        threads: warps.threads(),
        stage_bytes,
        shared_bytes: variant.stages.saturating_mul(stage_bytes).max(warps.handed_over(variant)),
        accumulators,
        registers: accumulators + WORKING_REGISTERS,
        blocks_per_sm: 1,
        layout: Layout::Mxf4(warps),
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
