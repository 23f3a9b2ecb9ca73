//! What is launched, in which order, and the workspace that it shares.

use super::Geometry;
use crate::format::Format;
use crate::spec::{Arch, Cluster, Fusion, MatrixPath, Problem, Tile, Variant};

/// Threads of the elementwise kernel that finishes partial sums, and columns that each of them takes.
const FINISH_THREADS: u32 = 256;
const FINISH_COLUMNS: u32 = 4;
/// Threads of the kernel that decodes tokens, each of which takes a block of 16 elements.
const PREPASS_THREADS: u32 = 256;
const PREPASS_ELEMENTS: u32 = 16;

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

/// The launches for `m` rows, in order; never more than four.
pub(in crate::spec) fn passes(
    problem: &Problem,
    variant: &Variant,
    arch: &Arch,
    geometry: &Geometry,
    m: u32,
) -> [Option<Pass>; 4] {
    let products =
        |product| Pass { kind: PassKind::Products { product }, ..matrix_pass(problem, variant, arch, geometry, m) };
    let elementwise = |kind, grid, threads| Pass { kind, grid, threads, shared_bytes: 0, cluster: [1; 3] };
    let blocks = u64::from(m) * u64::from(problem.depth() / PREPASS_ELEMENTS);
    let prepass_grid = u32::try_from(blocks.div_ceil(PREPASS_THREADS.into())).unwrap_or(u32::MAX);
    let prepass = elementwise(PassKind::Prepass, [prepass_grid.max(1), 1, 1], PREPASS_THREADS);
    let finish_grid = [m.max(1), problem.columns().div_ceil(FINISH_THREADS * FINISH_COLUMNS), 1];
    let finish = elementwise(PassKind::Finish, finish_grid, FINISH_THREADS);
    [
        variant.prepass.then_some(prepass),
        Some(products(0)),
        (variant.fusion == Fusion::TwoPass).then(|| products(1)),
        needs_finish(variant).then_some(finish),
    ]
}

fn matrix_pass(problem: &Problem, variant: &Variant, arch: &Arch, geometry: &Geometry, m: u32) -> Pass {
    let Tile { tokens, columns, .. } = variant.tile;
    // A group that ends inside a tile costs at most one more tile; which groups do is known on the device only.
    let token_tiles = match problem.groups() {
        Some(groups) => (m.saturating_add(groups.saturating_mul(tokens - 1)) / tokens).max(1),
        None => m.div_ceil(tokens).max(1),
    };
    let column_tiles = problem.columns().div_ceil(columns);
    let splits = variant.split_k * variant.cluster.splits();
    let (grid, cluster) = match (variant.path, variant.cluster) {
        _ if variant.persistent => {
            let resident = arch.sms() * geometry.blocks_per_sm;
            ([token_tiles.saturating_mul(column_tiles).min(resident), 1, 1], [1; 3])
        }
        (MatrixPath::Mma, _) => ([token_tiles, column_tiles, splits], [1; 3]),
        (MatrixPath::Wgmma, Cluster::Multicast(blocks)) => ([column_tiles, token_tiles, splits], [blocks, 1, 1]),
        (MatrixPath::Wgmma, cluster) => ([column_tiles, token_tiles, splits], [1, 1, cluster.splits()]),
    };
    let kind = PassKind::Products { product: 0 };
    Pass { kind, grid, threads: geometry.threads, shared_bytes: geometry.shared_bytes, cluster }
}

/// Partial sums leave the matrix kernel when K is split or when the two products are launched apart.
pub(in crate::spec) fn needs_finish(variant: &Variant) -> bool {
    variant.split_k > 1 || variant.fusion == Fusion::TwoPass
}

/// fp32 partial sums `[split, product, row, column]`.
pub(in crate::spec) fn partial_bytes(problem: &Problem, variant: &Variant, m: u32) -> u64 {
    if !needs_finish(variant) {
        return 0;
    }
    let products = u64::from(problem.operation().products());
    4 * u64::from(variant.split_k) * products * u64::from(m) * u64::from(problem.columns())
}

/// Decoded tokens `[m, K]`.
pub(in crate::spec) fn prepass_bytes(problem: &Problem, variant: &Variant, m: u32) -> u64 {
    if variant.prepass { u64::from(m) * Format::F16.bytes(problem.depth() as usize) as u64 } else { 0 }
}
