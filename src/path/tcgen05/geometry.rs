//! The path `tcgen05`: which operand is the rows of the instruction, and what lies where in shared and tensor memory.

use crate::format::{Format, ScaleLayout};
use crate::path::geometry::{Geometry, Grid, rows_bytes};
use crate::path::{Fusion, Layout, Rows, Tile, Variant};
use crate::problem::Problem;

/// Rows of the instruction in a block.
pub(super) const ROWS: u32 = 128;
/// Of K in a stage: a row of codes is 128 bytes, as wide as the swizzle.
pub(super) const K_DEPTH: u32 = 256;
/// Columns of tensor memory.
const TENSOR_COLUMNS: u32 = 512;
/// Columns of it that the scales of 128 rows and a stage take.
const SCALE_COLUMNS: u32 = 16;
/// Stages begin at multiples of the swizzle's pattern.
const STAGE_ALIGNMENT: u32 = 1024;
/// Warps that store, load weights, load tokens and multiply; and those that copy scales and gathered tokens, if any do.
const WARPS: u32 = 7;
const COPY_WARPS: u32 = 4;
/// Registers of a thread: 16 sums of two products and what is made of them.
const REGISTERS: u32 = 128;
/// A block that has more than half of an SM's shared memory is alone on it, so that none waits for tensor memory that others
/// have.
const ALONE: u32 = 117 * 1024;

/// Where everything is. The template of the path has the same names and says more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tcgen05Layout {
    /// Products of a launch.
    pub(super) block_products: u32,
    /// Columns of the instruction at most.
    pub(super) width: u32,
    /// Blocks that have a tile together.
    pub(super) tile_blocks: u32,
    /// Blocks of 128 rows of scales of a tile that is columns.
    pub(super) wide_scale_blocks: u32,
    /// Who loads codes loads scales, too, in blocks of 128 rows; else warps copy them.
    pub(super) loaded_weight_scales: bool,
    pub(super) loaded_token_scales: bool,
    pub(super) copy_warps: u32,
    /// Which copy tokens, too.
    pub(super) is_gathered: bool,
    /// Tiles whose sums tensor memory holds.
    pub(super) sum_sets: u32,
    /// Stages whose scales it holds; 0 if there is no room for any.
    pub(super) scale_slots: u32,
    pub(super) tensor_columns: u32,
    pub(super) barriers_offset: u32,
}

/// Products of a launch.
fn block_products(variant: &Variant) -> u32 {
    if variant.fusion == Fusion::Interleaved { 2 } else { 1 }
}

/// Columns of the instruction.
pub(super) fn width(variant: &Variant) -> u32 {
    match variant.rows {
        Rows::Weights => variant.tile.tokens,
        Rows::Tokens => variant.tile.columns,
    }
}

/// Sizes of a block.
pub(in crate::path) fn geometry(problem: &Problem, variant: &Variant) -> Geometry {
    let Tile { tokens, k, .. } = variant.tile;
    let (block_products, width, tile_blocks) = (block_products(variant), width(variant), variant.cluster.tile_blocks());
    let (row_tiles, wide_tiles) = match variant.rows {
        Rows::Weights => (block_products, 1),
        Rows::Tokens => (1, block_products),
    };
    // Whole blocks of 128 rows are loaded, from their begin or from their middle on.
    let in_blocks = problem.scale_layout() == ScaleLayout::Swizzled128x4;
    let loaded_weight_scales = in_blocks;
    let is_in_order = problem.groups().is_none() && !problem.is_gathered();
    let loaded_token_scales = in_blocks && is_in_order && tokens.is_multiple_of(64);
    let wide_scale_blocks = width.div_ceil(128);
    let copy_warps = if loaded_weight_scales && loaded_token_scales { 0 } else { COPY_WARPS };

    let (sums, slot) = (block_products * width, SCALE_COLUMNS * (row_tiles + wide_tiles * wide_scale_blocks));
    let fits = |sets: u32| sets * sums + 2 * slot <= TENSOR_COLUMNS;
    let sum_sets = if variant.persistent && fits(2) { 2 } else { 1 };
    let scale_slots = (TENSOR_COLUMNS.saturating_sub(sum_sets * sums) / slot).min(variant.stages);
    let tensor_columns = (sum_sets * sums + scale_slots * slot).next_power_of_two().clamp(32, TENSOR_COLUMNS);

    let codes = |rows: u32| Format::Nvfp4.bytes((rows * k) as usize) as u32;
    let scales = |blocks: u32| rows_bytes(Format::Nvfp4, blocks * 128, k) - codes(blocks * 128);
    let stage_bytes = (row_tiles * codes(ROWS)
        + wide_tiles * codes(width / tile_blocks)
        + scales(row_tiles + wide_tiles * wide_scale_blocks))
    .next_multiple_of(STAGE_ALIGNMENT);
    let barriers_offset = variant.stages.saturating_mul(stage_bytes);
    // Two for each stage, two for each set of sums, and the address of tensor memory.
    let needed = barriers_offset.saturating_add(16 * variant.stages + 48);
    Geometry {
        threads: 32 * (WARPS + copy_warps),
        stage_bytes,
        shared_bytes: needed.max(ALONE),
        accumulators: 32,
        registers: REGISTERS,
        blocks_per_sm: 1,
        layout: Layout::Tcgen05(Tcgen05Layout {
            block_products,
            width,
            tile_blocks,
            wide_scale_blocks,
            loaded_weight_scales,
            loaded_token_scales,
            copy_warps,
            is_gathered: problem.is_gathered(),
            sum_sets,
            scale_slots,
            tensor_columns,
            barriers_offset,
        }),
    }
}

/// Tiles of tokens come first: their blocks share weights. The blocks of a pair follow each other in z.
pub(in crate::path) fn grid(variant: &Variant) -> Grid {
    Grid { tokens_first: true, cluster: [1, 1, variant.cluster.tile_blocks()] }
}

/// Whether its kernels wait for what came before by themselves, so that they may begin under it: they do.
pub(in crate::path) fn can_depend() -> bool {
    true
}
