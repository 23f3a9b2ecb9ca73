//! What paths have in common whose warps all load, by `cp.async`, and all multiply, by an `mma.sync` of 16 rows of weights and
//! 8 tokens: the CUDA of it is `templates/mma_sync`.

use super::axes::{Axes, TILE_COLUMNS, TILE_K, TILE_TOKENS_MAX, TOKENS_EVEN, TOKENS_SHARED};
use super::cost::{Block, Constants, Cover, steps};
use super::geometry::{Grid, K_BLOCK};
use super::names::{Cuda, Names, templates};
use super::refusal::{axis, together};
use super::{Cluster, Epilogue, Fusion, MatrixPath, Refusal, Rows, Sharers, Tile, Variant, Warps};
use crate::problem::Problem;

/// Rows of one result of the instruction: weights are its 16 rows, tokens its 8 columns.
const MMA_ROWS: u32 = 16;
/// Warps of one block at most; more would halve the registers that each thread may use.
const WARPS_MAX: u32 = 8;
/// Threads of a block at most.
pub(crate) const THREADS_MAX: u32 = 32 * WARPS_MAX;
/// Tokens of one warp, as long as there are warps left to share them.
const WARP_TOKENS: u32 = 64;

const TOKENS: [u32; 6] = [8, 16, 32, 64, 128, 256];
const STAGES: [u32; 6] = [1, 2, 3, 4, 6, 8];
const SPLITS: [(u32, Cluster); 4] = [(1, Cluster::None), (2, Cluster::None), (4, Cluster::None), (8, Cluster::None)];

/// How the warps of a block share its tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WarpGrid {
    /// Warps along the tile's columns.
    pub(crate) columns: u32,
    /// Warps along the tile's tokens.
    pub(crate) tokens: u32,
    /// Warps that share each place of the tile and take turns with the K blocks of a stage.
    pub(crate) k: u32,
}

impl WarpGrid {
    /// Warps go along the columns first: those that share weights each turn them into fragments for themselves.
    pub(super) fn of(tile: Tile) -> Self {
        let columns = (tile.columns / MMA_ROWS).clamp(1, WARPS_MAX);
        let tokens = tile.tokens.div_ceil(WARP_TOKENS).next_power_of_two().min(WARPS_MAX / columns);
        let k = (WARPS_MAX / (columns * tokens)).min(tile.k / K_BLOCK).max(1);
        Self { columns, tokens, k }
    }

    /// Places of warps in the tile.
    pub(super) fn places(&self) -> u32 {
        self.columns * self.tokens
    }

    /// Threads of a block.
    pub(super) fn threads(&self) -> u32 {
        32 * self.places() * self.k
    }

    /// Accumulators of a thread.
    pub(super) fn accumulators(&self, variant: &Variant) -> u32 {
        block_products(variant.fusion) * variant.tile.tokens * variant.tile.columns / (32 * self.places())
    }

    /// Shared memory in which warps at one place but the first hand over their sums, where the stages were.
    pub(super) fn handed_over(&self, variant: &Variant) -> u32 {
        4 * self.accumulators(variant) * 32 * self.places() * (self.k - 1)
    }

    /// Who shares the K of a block: warps at one place take turns with the K blocks, whatever a stage holds.
    pub(super) fn sharers(&self) -> Sharers {
        Sharers { count: self.k, depth: K_BLOCK }
    }

    /// What the templates name.
    pub(super) fn names(&self) -> Names {
        vec![("warps_tokens", self.tokens.into()), ("warps_columns", self.columns.into()), ("warps_k", self.k.into())]
    }
}

/// Products whose weights one stage holds.
pub(super) fn stage_products(fusion: Fusion) -> u32 {
    if fusion == Fusion::Interleaved { 2 } else { 1 }
}

/// Products that one block accumulates.
fn block_products(fusion: Fusion) -> u32 {
    if matches!(fusion, Fusion::Interleaved | Fusion::Sequential) { 2 } else { 1 }
}

/// Blocks that share weights run together: tiles of tokens come first.
pub(super) const GRID: Grid = Grid { tokens_first: true, cluster: [1; 3] };

/// Blocks of zeros that are multiplied behind the end of K: up to a whole tile.
pub(super) fn zeros(problem: &Problem, variant: &Variant) -> u32 {
    (problem.depth().next_multiple_of(variant.tile.k) - problem.depth()) / K_BLOCK
}

/// The values of each axis that are worth searching.
pub(super) const fn axes(path: MatrixPath) -> Axes {
    Axes {
        path,
        tokens: &TOKENS,
        tokens_always: TOKENS_SHARED,
        tokens_even: TOKENS_EVEN,
        tokens_step: 1,
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

/// Refuses a way to fuse two products that there is not; `expected` is the sentence that says so.
pub(super) fn check_fusion(fusion: Fusion, expected: &'static str) -> Result<(), Refusal> {
    match fusion {
        Fusion::PerProduct | Fusion::PingPong => Err(Refusal::Fusion { fusion, expected }),
        _ => Ok(()),
    }
}

/// What a tile's tokens are a multiple of: warps share them evenly, all of them up to 64, halves up to 128, quarters up
/// to 256.
fn step(tokens: u32) -> u32 {
    8 * tokens.clamp(1, TILE_TOKENS_MAX).div_ceil(64).next_power_of_two()
}

/// The least height of a tile that holds so many rows, or what would be if tiles could be that high.
pub(super) fn tokens(rows: u32) -> u32 {
    rows.next_multiple_of(step(rows))
}

/// Whether the values of the axes go together; `path` is what a refusal calls the path.
pub(super) fn check_axes(path: &'static str, variant: &Variant) -> Result<(), Refusal> {
    let tile = variant.tile;
    axis(
        "tile tokens",
        tile.tokens,
        tile.tokens > 0 && tile.tokens <= TILE_TOKENS_MAX && tile.tokens.is_multiple_of(step(tile.tokens)),
        "a multiple of 8 up to 64, of 16 up to 128, of 32 up to 256",
    )?;
    axis("tile columns", tile.columns, TILE_COLUMNS.contains(&tile.columns), "32, 64, 128 or 256")?;
    together(path, variant.warps == Warps::Uniform, "uniform warps")?;
    together(path, variant.epilogue == Epilogue::Direct, "epilogue direct")?;
    together(path, variant.cluster == Cluster::None, "no cluster")?;
    together(path, variant.rows == Rows::Weights, "weights as rows of the instruction")?;
    together(path, !variant.persistent, "a block for each tile, not persistent ones")?;
    together(path, !variant.prepass, "tokens that are decoded by the kernel, not by a prepass")
}

/// What the paths work out for themselves of a step of a block.
pub(super) struct Work {
    /// Times that the tokens of a tile are gone through.
    pub(super) passes: f64,
    /// Multiplied tiles of 64 rows of weights, as for the path `wgmma`.
    pub(super) rows: f64,
    pub(super) bytes: f64,
    pub(super) tensor: f64,
    /// Instructions that make fragments; of them those that a warp's products wait for.
    pub(super) decode: f64,
    pub(super) decode_waited_for: f64,
}

/// The work of a block.
pub(super) fn block(
    layout: &WarpGrid,
    problem: &Problem,
    variant: &Variant,
    work: &Work,
    cover: &Cover,
    c: &Constants,
) -> Block {
    let Work { passes, rows, bytes, tensor, decode, decode_waited_for } = *work;
    let turns = f64::from(layout.k);
    let places = f64::from(layout.places());
    Block {
        steps: steps(problem, variant),
        steps_per_stage: f64::from(variant.tile.k) / 64.0,
        stages: f64::from(variant.stages),
        turns: 1.0,
        rotation: 1.0,
        tensor,
        decode,
        ingress: bytes / c.mma_ingress,
        // Few warps do not fill the schedulers.
        serial: c.mma_chain * (tensor + decode_waited_for) * (8.0 / (places * turns)).max(1.0),
        serial_per_stage: passes * c.mma_stage,
        loading: 0.0,
        latency: c.mma_latency,
        hold: c.mma_hold,
        start: c.mma_block,
        start_beside: 0.0,
        start_behind: 0.0,
        tail: cover.width * rows / (places / 8.0) * (c.mma_store_token + c.mma_reduce_token * (turns - 1.0)),
    }
}

/// Templates and headers.
pub(crate) const CUDA: Cuda = Cuda {
    templates: templates!["mma_sync/constants.cu", "mma_sync/kernel.cu"],
    headers: templates![
        "mma_sync/epilogue/direct.cuh",
        "mma_sync/fusion/interleaved.cuh",
        "mma_sync/fusion/one_product.cuh",
        "mma_sync/fusion/sequential.cuh",
        "mma_sync/fusion/single.cuh",
        "mma_sync/fusion/two_pass.cuh",
        "mma_sync/layout.cuh",
        "mma_sync/load/gathered_nvfp4.cuh",
        "mma_sync/load/nvfp4.cuh",
        "mma_sync/pipeline.cuh",
        "mma_sync/result/final.cuh",
        "mma_sync/result/partial.cuh",
        "mma_sync/schedule/grouped.cuh",
        "mma_sync/schedule/single.cuh",
        "mma_sync/sums.cuh",
    ],
};
