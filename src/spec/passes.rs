//! What is launched, in which order, and the workspace that it shares.

use super::{Arch, Fusion, Geometry, Problem, Spread, Tile, Variant};
use crate::format::Format;
use crate::path::{EARLY_PREPASS, Grid, PREPASS, PrepassShape};

/// Threads of the elementwise kernel that finishes partial sums, and columns that each of them takes.
const FINISH_THREADS: u32 = 256;
const FINISH_COLUMNS: u32 = 4;

/// Up to so many blocks of an SM are kept apart; more lie well enough.
const KEPT_APART: u32 = 3;

/// What a launch of the sequence does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PassKind {
    /// The kernel that decodes NVFP4 tokens into the workspace.
    Prepass,
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
    /// Blocks of a cluster in x, y, z.
    pub cluster: [u32; 3],
}

/// A launch of the sequence but for M: what can be worked out once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch {
    pub(crate) kind: PassKind,
    pub(crate) threads: u32,
    pub(crate) shared_bytes: u32,
    pub(crate) cluster: [u32; 3],
    blocks: Blocks,
    spread: Spread,
}

/// How many blocks there are for M rows.
#[derive(Clone, Copy, Debug)]
enum Blocks {
    /// Decoding: so many codes a row, and a block.
    Codes { per_row: u32, per_block: u32 },
    /// Tiles of tokens, from M and the groups; then of columns, and splits.
    Tiles { tokens: u32, groups: u32, columns: u32, splits: u32, tokens_first: bool },
    /// The same tiles, taken in turn by as many blocks as run at once, or as many times as many of them as share a tile.
    Persistent { tokens: u32, groups: u32, columns: u32, resident: u32, splits: u32 },
    /// Rows, and blocks of columns.
    Rows { columns: u32 },
}

impl Blocks {
    /// In x, y, z for `m` rows.
    #[inline(always)]
    fn grid(&self, m: u32) -> [u32; 3] {
        // Which groups have rows is known on the device only: most tiles there are where as many as can have one row, and
        // the others fill whole tiles of one group.
        let tiles = |tokens: u32, groups: u32| {
            let apart = m.min(groups);
            (apart + (m - apart) / tokens).max(1)
        };
        match *self {
            Blocks::Codes { per_row, per_block } => {
                let blocks = (u64::from(m) * u64::from(per_row)).div_ceil(per_block.into());
                [u32::try_from(blocks).unwrap_or(u32::MAX).max(1), 1, 1]
            }
            Blocks::Tiles { tokens, groups, columns, splits, tokens_first: true } => {
                [tiles(tokens, groups), columns, splits]
            }
            Blocks::Tiles { tokens, groups, columns, splits, .. } => [columns, tiles(tokens, groups), splits],
            Blocks::Persistent { tokens, groups, columns, resident, splits } => {
                [tiles(tokens, groups).saturating_mul(columns).min(resident), 1, splits]
            }
            Blocks::Rows { columns } => [m.max(1), columns, 1],
        }
    }
}

impl Launch {
    /// Blocks in x, y, z for `m` rows. Inlined, so that they do not go through memory, written one by one and read two at a
    /// time.
    #[inline(always)]
    pub(crate) fn grid(&self, m: u32) -> [u32; 3] {
        self.blocks.grid(m)
    }

    /// Dynamic shared memory of a block of `grid`, where the launch begins under the kernel before it.
    #[inline]
    pub(crate) fn dependent_shared_bytes(&self, grid: [u32; 3]) -> u32 {
        let [x, y, z] = grid;
        self.shared_bytes.max(self.spread.bytes(x.saturating_mul(y).saturating_mul(z)))
    }

    /// The most dynamic shared memory that a block is launched with.
    pub(crate) fn most_shared_bytes(&self) -> u32 {
        self.shared_bytes.max(self.spread.most_bytes())
    }

    /// For `m` rows.
    pub(super) fn at(&self, m: u32) -> Pass {
        let Launch { kind, threads, shared_bytes, cluster, .. } = *self;
        Pass { kind, grid: self.grid(m), threads, shared_bytes, cluster }
    }
}

/// The launches in order; never more than four.
pub(super) fn launches(problem: &Problem, variant: &Variant, arch: &Arch, geometry: &Geometry) -> [Option<Launch>; 4] {
    let matrix = matrix_launch(problem, variant, arch, geometry);
    let products = |product| Launch { kind: PassKind::Products { product }, ..matrix };
    let columns = problem.columns().div_ceil(FINISH_THREADS * FINISH_COLUMNS);
    [
        variant.prepass.then(|| prepass(problem, PREPASS)),
        Some(products(0)),
        (variant.fusion == Fusion::TwoPass).then(|| products(1)),
        variant.needs_finish().then(|| elementwise(PassKind::Finish, FINISH_THREADS, Blocks::Rows { columns })),
    ]
}

/// The prepass of dependent launches, and the rows up to which they have it: its blocks wait on the SMs for the kernel before
/// to end, and more than find room there would take turns then.
pub(super) fn early_prepass(problem: &Problem, variant: &Variant, arch: &Arch) -> Option<(Launch, u32)> {
    let PrepassShape { threads, codes } = EARLY_PREPASS;
    let at_once = arch.sms() * (arch.threads_per_sm() / threads);
    let rows = at_once.saturating_mul(threads * codes) / problem.depth();
    variant.prepass.then(|| (prepass(problem, EARLY_PREPASS), rows))
}

fn prepass(problem: &Problem, PrepassShape { threads, codes }: PrepassShape) -> Launch {
    elementwise(PassKind::Prepass, threads, Blocks::Codes { per_row: problem.depth(), per_block: threads * codes })
}

/// None of clusters, whose blocks lie together.
fn spread(variant: &Variant, arch: &Arch, cluster: [u32; 3]) -> Spread {
    if cluster != [1; 3] || !variant.path.can_depend() {
        return Spread::default();
    }
    let bytes = |blocks| if blocks <= KEPT_APART { arch.shared_to_keep(blocks) } else { 0 };
    Spread::new(arch.sms(), std::array::from_fn(|index| bytes(index as u32 + 1)))
}

fn elementwise(kind: PassKind, threads: u32, blocks: Blocks) -> Launch {
    Launch { kind, threads, shared_bytes: 0, cluster: [1; 3], blocks, spread: Spread::default() }
}

fn matrix_launch(problem: &Problem, variant: &Variant, arch: &Arch, geometry: &Geometry) -> Launch {
    let Grid { tokens_first, cluster } = variant.path.grid(variant);
    let blocks = matrix_blocks(problem, variant, arch, geometry, tokens_first);
    let kind = PassKind::Products { product: 0 };
    let spread = spread(variant, arch, cluster);
    Launch { kind, threads: geometry.threads, shared_bytes: geometry.shared_bytes, cluster, blocks, spread }
}

fn matrix_blocks(problem: &Problem, variant: &Variant, arch: &Arch, geometry: &Geometry, tokens_first: bool) -> Blocks {
    let Tile { tokens, columns, .. } = variant.tile;
    let groups = problem.groups().unwrap_or(1);
    let columns = problem.columns().div_ceil(columns);
    let splits = variant.split_k * variant.cluster.splits() * variant.cluster.tile_blocks();
    if variant.persistent {
        let resident = arch.sms() * geometry.blocks_per_sm / splits;
        Blocks::Persistent { tokens, groups, columns, resident, splits }
    } else {
        Blocks::Tiles { tokens, groups, columns, splits, tokens_first }
    }
}

/// Blocks that the grid of the matrix kernel has for `m` rows.
pub(crate) fn blocks(problem: &Problem, variant: &Variant, arch: &Arch, geometry: &Geometry, m: u32) -> f64 {
    // As many in either order.
    matrix_blocks(problem, variant, arch, geometry, false).grid(m).into_iter().map(f64::from).product()
}

/// A row of fp32 partial sums `[split, product, row, column]`, all splits and products counted.
pub(super) fn partial_row_bytes(problem: &Problem, variant: &Variant) -> u64 {
    if !variant.needs_finish() {
        return 0;
    }
    let products = u64::from(problem.operation().products());
    4 * u64::from(variant.split_k) * products * u64::from(problem.columns())
}

/// A row of decoded tokens `[m, K]`.
pub(super) fn decoded_row_bytes(problem: &Problem, variant: &Variant) -> u64 {
    if variant.prepass { Format::F16.bytes(problem.depth() as usize) as u64 } else { 0 }
}
