//! The path `mma`: warps along columns, tokens and K of a tile; stages of tokens and weights as they are given.

use crate::format::Format;
use crate::path::geometry::{Geometry, Grid, K_BLOCK, rows_bytes};
use crate::path::{Fusion, Layout, Tile, Variant};
use crate::problem::Problem;

/// Rows of one `mma.sync.m16n8k16` result: weights are its 16 rows, tokens its 8 columns.
const MMA_ROWS: u32 = 16;
/// Warps of one block at most; more would halve the registers that each thread may use.
const WARPS_MAX: u32 = 8;
/// Tokens of one warp, as long as there are warps left to share them.
const WARP_TOKENS: u32 = 64;
/// Registers that a thread needs beside its accumulators: fragments, addresses, loop state; some more where a stage is so
/// deep that the compiler has more of it under way.
fn working_registers(tile: Tile) -> u32 {
    if tile.k <= K_BLOCK { 96 } else { 104 }
}

/// How the warps of a block share its tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MmaLayout {
    /// Warps along the tile's columns.
    pub(crate) warps_columns: u32,
    /// Warps along the tile's tokens.
    pub(crate) warps_tokens: u32,
    /// Warps that share each place of the tile and take turns with the K blocks of a stage.
    pub(crate) warps_k: u32,
}

/// Sizes of a block.
pub(in crate::path) fn geometry(problem: &Problem, variant: &Variant) -> Geometry {
    let Tile { tokens, columns, k } = variant.tile;
    // Warps go along the columns first: warps that share weights each turn them into 16-bit values for themselves.
    let warps_columns = (columns / MMA_ROWS).clamp(1, WARPS_MAX);
    let warps_tokens = tokens.div_ceil(WARP_TOKENS).next_power_of_two().min(WARPS_MAX / warps_columns);
    let places = warps_columns * warps_tokens;
    let warps_k = (WARPS_MAX / places).min(k / K_BLOCK).max(1);
    // Products whose weights one stage holds, and products that one block accumulates.
    let (stage_products, block_products) = match variant.fusion {
        Fusion::Interleaved => (2, 2),
        Fusion::Sequential => (1, 2),
        _ => (1, 1),
    };
    let stage_bytes =
        rows_bytes(problem.a_format(), tokens, k) + stage_products * rows_bytes(problem.b_format(), columns, k);
    let accumulators = block_products * tokens * columns / (32 * places);
    // NVFP4 tokens are decoded once a stage, into a tile of 16-bit values behind the stages.
    let decoded = if problem.a_format() == Format::Nvfp4 { rows_bytes(Format::F16, tokens, k) } else { 0 };
    let shared_bytes = variant.stages.saturating_mul(stage_bytes).saturating_add(decoded);
    // Warps at one place but the first hand over their sums where the stages were.
    let handed_over = 4 * accumulators * 32 * places * (warps_k - 1);
    Geometry {
        threads: 32 * places * warps_k,
        stage_bytes,
        shared_bytes: shared_bytes.max(handed_over),
        accumulators,
        registers: accumulators + working_registers(variant.tile),
        blocks_per_sm: 1,
        layout: Layout::Mma(MmaLayout { warps_columns, warps_tokens, warps_k }),
    }
}

/// Blocks that share weights run together: tiles of tokens come first.
pub(in crate::path) fn grid(_: &Variant) -> Grid {
    Grid { tokens_first: true, cluster: [1; 3] }
}

/// Whether its kernels wait for what came before by themselves, so that they may begin under it: they do not.
pub(in crate::path) fn can_depend() -> bool {
    false
}
