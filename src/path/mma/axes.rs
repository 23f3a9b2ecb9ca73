//! The values that are worth searching, and the plainest of them.

use crate::path::axes::{Axes, TILE_COLUMNS, TILE_K};
use crate::path::{Cluster, Epilogue, Fusion, MatrixPath, Rows, Tile, Variant, Warps};
use crate::problem::Problem;

const TOKENS: [u32; 6] = [8, 16, 32, 64, 128, 256];
const STAGES: [u32; 6] = [1, 2, 3, 4, 6, 8];
const SPLITS: [(u32, Cluster); 4] = [(1, Cluster::None), (2, Cluster::None), (4, Cluster::None), (8, Cluster::None)];

/// For a problem that the path takes.
pub(in crate::path) fn axes(_: &Problem) -> Axes {
    Axes {
        path: MatrixPath::Mma,
        tokens: &TOKENS,
        columns: TILE_COLUMNS,
        k: &TILE_K,
        stages: &STAGES,
        fusions: Fusion::ALL,
        warps: &[Warps::Uniform],
        sharing: &SPLITS,
        epilogues: &[Epilogue::Direct],
        persistent: &[false],
        prepass: &[false],
        rows: &[Rows::Weights],
    }
}

/// One stage of a 128×128 tile.
pub(in crate::path) fn baseline(_: &Problem, fusion: Fusion) -> Variant {
    Variant::mma(Tile { tokens: 128, columns: 128, k: 64 }, 1, fusion, 1)
}
