//! The values that are worth searching, and the plainest of them.

use crate::path::axes::Axes;
use crate::path::{Fusion, MatrixPath, Tile, Variant, mma_sync};
use crate::problem::Problem;

/// For a problem that the path takes.
pub(in crate::path) fn axes(_: &Problem) -> Axes {
    mma_sync::axes(MatrixPath::Mxf4)
}

/// One stage of a 128×128 tile.
pub(in crate::path) fn baseline(_: &Problem, fusion: Fusion) -> Variant {
    let tile = Tile { tokens: 128, columns: 128, k: 64 };
    Variant { path: MatrixPath::Mxf4, ..Variant::mma(tile, 1, fusion, 1) }
}
