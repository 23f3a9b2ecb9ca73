//! The values that are worth searching, and the plainest of them.

use super::geometry::{K_DEPTH, ROWS};
use crate::path::axes::{Axes, TILE_TOKENS_MAX, TOKENS_EVEN};
use crate::path::{Cluster, Epilogue, Fusion, MatrixPath, Rows, Tile, Variant, Warps};
use crate::problem::Problem;

const TOKENS: [u32; 11] = [16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 256];
const STAGES: [u32; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 10];
const FUSIONS: [Fusion; 3] = [Fusion::Single, Fusion::Interleaved, Fusion::TwoPass];
/// Splits of K and pairs.
const SHARING: [(u32, Cluster); 8] = [
    (1, Cluster::None),
    (1, Cluster::Pair),
    (2, Cluster::None),
    (2, Cluster::Pair),
    (4, Cluster::None),
    (4, Cluster::Pair),
    (8, Cluster::None),
    (8, Cluster::Pair),
];

/// For a problem that the path takes.
pub(in crate::path) fn axes(_: &Problem) -> Axes {
    Axes {
        path: MatrixPath::Tcgen05,
        tokens: &TOKENS,
        // Each may be the only one of its kind.
        tokens_always: TILE_TOKENS_MAX,
        tokens_even: TOKENS_EVEN,
        tokens_step: 1,
        columns: [64, 128, 192, 256],
        k: &[K_DEPTH],
        stages: &STAGES,
        fusions: &FUSIONS,
        warps: &[Warps::Specialised(1)],
        sharing: &SHARING,
        epilogues: &[Epilogue::Direct],
        persistent: &[false, true],
        prepass: &[false],
        rows: &[Rows::Weights, Rows::Tokens],
    }
}

/// One stage of a tile of 128 columns and 64 tokens.
pub(in crate::path) fn baseline(_: &Problem, fusion: Fusion) -> Variant {
    Variant::tcgen05(Tile { tokens: 64, columns: ROWS, k: K_DEPTH }, 1, fusion, Rows::Weights)
}
