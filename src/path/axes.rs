//! The values of each axis that are worth searching.

use super::{Cluster, Epilogue, Fusion, MatrixPath, Rows, Warps};

/// Columns of a tile, where a path takes the same for every problem.
pub(super) const TILE_COLUMNS: [u32; 4] = [32, 64, 128, 256];
/// Depths of a tile.
pub(crate) const TILE_K: [u32; 3] = [64, 128, 256];
/// Tokens of a tile at most.
pub(super) const TILE_TOKENS_MAX: u32 = 256;

/// Of tiles that share many rows taller ones have few registers, where a path does not say more.
pub(super) const TOKENS_EVEN: u32 = 208;
/// Sums are shared in parts of so many tokens.
pub(super) const TOKENS_SHARED: u32 = 32;

/// The values of each axis that are worth searching, in ascending order where there is one.
#[derive(Clone, Copy, Debug)]
pub struct Axes {
    /// Matrix path.
    pub path: MatrixPath,
    /// Tokens of a tile.
    pub tokens: &'static [u32],
    /// Tiles of up to so many tokens are worth searching however few rows there are.
    pub tokens_always: u32,
    /// Tiles of at most so many tokens are worth searching that share more rows than the tallest has.
    pub tokens_even: u32,
    /// Those that share rows evenly are worth searching in multiples of so many tokens, too.
    pub tokens_step: u32,
    /// Columns of a tile.
    pub columns: [u32; 4],
    /// K of a tile.
    pub k: &'static [u32],
    /// Pipeline stages.
    pub stages: &'static [u32],
    /// How a dual product is fused.
    pub fusions: &'static [Fusion],
    /// Division of warps.
    pub warps: &'static [Warps],
    /// Split-K and cluster.
    pub sharing: &'static [(u32, Cluster)],
    /// Ways to write C.
    pub epilogues: &'static [Epilogue],
    /// Whether blocks stay.
    pub persistent: &'static [bool],
    /// Whether A is decoded before.
    pub prepass: &'static [bool],
    /// Which operand is the rows of the instruction.
    pub rows: &'static [Rows],
}
