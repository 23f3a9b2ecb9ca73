//! The values of each axis that are worth searching.

use super::{Cluster, Epilogue, Fusion, MatrixPath, Warps};

/// Columns of a tile, where a path takes the same for every problem.
pub(super) const TILE_COLUMNS: [u32; 4] = [32, 64, 128, 256];
/// Depths of a tile.
pub(crate) const TILE_K: [u32; 3] = [64, 128, 256];
/// Tokens of a tile at most.
pub(super) const TILE_TOKENS_MAX: u32 = 256;

/// The values of each axis that are worth searching, in ascending order where there is one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axes {
    pub(crate) path: MatrixPath,
    pub(crate) tokens: &'static [u32],
    pub(crate) columns: [u32; 4],
    pub(crate) k: [u32; 3],
    pub(crate) stages: &'static [u32],
    pub(crate) fusions: &'static [Fusion],
    pub(crate) warps: &'static [Warps],
    /// Split-K and cluster.
    pub(crate) sharing: &'static [(u32, Cluster)],
    pub(crate) epilogues: &'static [Epilogue],
    pub(crate) persistent: &'static [bool],
    pub(crate) prepass: &'static [bool],
}
