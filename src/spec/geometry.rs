//! What follows from a problem and a variant: how warps share a tile, what a stage holds, what is launched.

use super::{Arch, Fusion, Operation, Problem, Tile, Variant};
use crate::format::Format;

/// Rows and columns of one `mma.sync.m16n8k16` result: weights are its 16 rows, tokens its 8 columns.
pub(crate) const MMA_ROWS: u32 = 16;
pub(crate) const MMA_TOKENS: u32 = 8;
/// K is cut into blocks of this many elements: 128 bytes of 16-bit values, 32 bytes of codes and 4 scales.
pub(crate) const K_BLOCK: u32 = 64;
/// Warps of one block at most; more would halve the registers that each thread may use.
const WARPS_MAX: u32 = 8;
/// Tokens of one warp, as long as there are warps left to share them.
const WARP_TOKENS: u32 = 64;
/// Registers that a thread needs beside its accumulators: fragments, addresses, loop state.
pub(crate) const WORKING_REGISTERS: u32 = 96;
/// More resident blocks than this hide no more latency.
const BLOCKS_PER_SM_MAX: u32 = 4;
/// Threads of the elementwise kernel that finishes partial sums, and columns that each of them takes.
const FINISH_THREADS: u32 = 256;
const FINISH_COLUMNS: u32 = 4;

/// Sizes derived from a problem and a variant. All of shared memory is dynamic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Warps along the tile's columns.
    pub warps_columns: u32,
    /// Warps along the tile's tokens.
    pub warps_tokens: u32,
    /// Warps that share each place of the tile and take turns with the K blocks of a stage.
    pub warps_k: u32,
    /// Products whose weights one stage holds: 2 if interleaved, else 1.
    pub stage_products: u32,
    /// Products accumulated in registers by one block.
    pub block_products: u32,
    /// Bytes of one pipeline stage.
    pub stage_bytes: u32,
    /// Dynamic shared memory of one block.
    pub shared_bytes: u32,
    /// fp32 accumulators of one thread.
    pub accumulators: u32,
    /// Blocks that one SM should hold at a time: what shared memory and the estimated registers allow, four at most.
    /// The compiler is told, so that it does not spend registers that another block needs.
    pub blocks_per_sm: u32,
}

impl Geometry {
    pub(super) fn new(problem: &Problem, variant: &Variant, arch: &Arch) -> Self {
        let Tile { tokens, columns, k } = variant.tile;
        // Warps go along the columns first: warps that share weights each turn them into 16-bit values for themselves.
        let warps_columns = (columns / MMA_ROWS).clamp(1, WARPS_MAX);
        let warps_tokens = tokens.div_ceil(WARP_TOKENS).next_power_of_two().min(WARPS_MAX / warps_columns);
        let places = warps_columns * warps_tokens;
        let warps_k = (WARPS_MAX / places).min(k / K_BLOCK).max(1);
        let (stage_products, block_products) = match variant.fusion {
            Fusion::Single | Fusion::TwoPass => (1, 1),
            Fusion::Sequential => (1, 2),
            Fusion::Interleaved => (2, 2),
        };
        let stage_bytes =
            rows_bytes(problem.a_format(), tokens, k) + stage_products * rows_bytes(problem.b_format(), columns, k);
        let threads = 32 * places * warps_k;
        let accumulators = block_products * tokens * columns / (32 * places);
        // NVFP4 tokens are decoded once a stage, into a tile of 16-bit values behind the stages.
        let decoded = if problem.a_format() == Format::Nvfp4 { rows_bytes(Format::F16, tokens, k) } else { 0 };
        let shared_bytes = variant.stages.saturating_mul(stage_bytes).saturating_add(decoded);
        // Warps at one place but the first hand over their sums where the stages were.
        let handed_over = 4 * accumulators * 32 * places * (warps_k - 1);
        let shared_bytes = shared_bytes.max(handed_over);
        let resident = arch.blocks_per_sm(threads, shared_bytes, accumulators + WORKING_REGISTERS);
        Self {
            warps_columns,
            warps_tokens,
            warps_k,
            stage_products,
            block_products,
            stage_bytes,
            shared_bytes,
            accumulators,
            blocks_per_sm: resident.clamp(1, BLOCKS_PER_SM_MAX),
        }
    }

    /// Threads of one block.
    #[must_use]
    pub fn threads(&self) -> u32 {
        32 * self.warps_tokens * self.warps_columns * self.warps_k
    }
}

/// Shared memory of a tile of `rows` × `k` elements: codes or values, and four scales a row for each K block.
fn rows_bytes(format: Format, rows: u32, k: u32) -> u32 {
    let values = format.bytes(k as usize) as u32;
    let scales = if format == Format::Nvfp4 { k / 16 } else { 0 };
    rows * (values + scales)
}

/// What a launch of the sequence does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PassKind {
    /// The matrix kernel; `product` says which B it multiplies with where a launch computes one of two.
    Products {
        /// 0 for B or B1, 1 for B2.
        product: u32,
    },
    /// The elementwise kernel: adds partial sums, applies α and activation, rounds to C.
    Finish,
}

/// One kernel launch of the sequence that computes a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pass {
    /// What it does.
    pub kind: PassKind,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// Dynamic shared memory of a block in bytes.
    pub shared_bytes: u32,
}

/// The launches for `m` rows, in order; never more than three.
pub(super) fn passes(problem: &Problem, variant: &Variant, geometry: &Geometry, m: u32) -> ([Pass; 3], usize) {
    let Tile { tokens, columns, .. } = variant.tile;
    // A group that ends inside a tile costs at most one more tile; which groups do is known on the device only.
    let spare = problem.groups().map_or(0, |groups| groups.saturating_mul(tokens - 1));
    let token_tiles =
        if problem.groups().is_some() { (m.saturating_add(spare) / tokens).max(1) } else { m.div_ceil(tokens).max(1) };
    let products = |product| Pass {
        kind: PassKind::Products { product },
        grid: [token_tiles, problem.columns().div_ceil(columns), variant.split_k],
        threads: geometry.threads(),
        shared_bytes: geometry.shared_bytes,
    };
    let finish = Pass {
        kind: PassKind::Finish,
        grid: [m.max(1), problem.columns().div_ceil(FINISH_THREADS * FINISH_COLUMNS), 1],
        threads: FINISH_THREADS,
        shared_bytes: 0,
    };
    match (variant.fusion, needs_finish(variant)) {
        (Fusion::TwoPass, _) => ([products(0), products(1), finish], 3),
        (_, true) => ([products(0), finish, finish], 2),
        (_, false) => ([products(0), finish, finish], 1),
    }
}

/// Partial sums leave the matrix kernel when K is split or when the two products are launched apart.
pub(super) fn needs_finish(variant: &Variant) -> bool {
    variant.split_k > 1 || variant.fusion == Fusion::TwoPass
}

/// fp32 partial sums `[split, product, row, column]`.
pub(super) fn workspace_bytes(operation: Operation, n: u32, variant: &Variant, m: u32) -> u64 {
    if !needs_finish(variant) {
        return 0;
    }
    4 * u64::from(variant.split_k) * u64::from(operation.products()) * u64::from(m) * u64::from(n)
}
