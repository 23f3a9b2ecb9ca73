//! The values that are worth searching, and the plainest of them.

use crate::path::axes::{Axes, TILE_COLUMNS, TILE_K};
use crate::path::{Cluster, Epilogue, Fusion, MatrixPath, Rows, Tile, Variant, Warps};
use crate::problem::Problem;

/// For a problem that the path takes.
pub(in crate::path) fn axes(_: &Problem) -> Axes {
    Axes {
        path: MatrixPath::Demo,
        tokens: &[8],
        tokens_always: 8,
        tokens_even: 8,
        tokens_step: 1,
        columns: TILE_COLUMNS,
        k: &TILE_K,
        stages: &[1],
        fusions: &[Fusion::Single],
        warps: &[Warps::Uniform],
        sharing: &[(1, Cluster::None)],
        epilogues: &[Epilogue::Direct],
        persistent: &[false],
        prepass: &[false],
        rows: &[Rows::Weights],
    }
}

/// The plainest variant.
pub(in crate::path) fn baseline(_: &Problem, fusion: Fusion) -> Variant {
    let tile = Tile { tokens: 8, columns: 64, k: 64 };
    Variant { path: MatrixPath::Demo, ..Variant::mma(tile, 1, fusion, 1) }
}
