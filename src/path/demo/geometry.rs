//! Threads, registers and shared memory of a block, and how blocks lie in the grid.

use crate::path::geometry::{Geometry, Grid, rows_bytes};
use crate::path::{Layout, Variant};
use crate::problem::Problem;

/// What only this path knows of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DemoLayout;

/// Sizes of a block.
pub(in crate::path) fn geometry(problem: &Problem, variant: &Variant) -> Geometry {
    let stage_bytes = rows_bytes(problem.a_format(), variant.tile.tokens, variant.tile.k);
    Geometry {
        threads: 128,
        stage_bytes,
        shared_bytes: variant.stages * stage_bytes,
        accumulators: 0,
        registers: 32,
        blocks_per_sm: 1,
        layout: Layout::Demo(DemoLayout),
    }
}

/// How the blocks lie in the grid.
pub(in crate::path) fn grid(_: &Variant) -> Grid {
    Grid { tokens_first: true, cluster: [1; 3] }
}

/// Whether its kernels wait for what came before by themselves, so that they may begin under it.
pub(in crate::path) fn can_depend() -> bool {
    false
}
