//! The variants there are for a problem.

use super::legal::{TILE_COLUMNS, TILE_K};
use super::{Arch, Cluster, Epilogue, Fusion, Operation, Problem, Spec, Tile, Variant, Warps};
use crate::format::Format;

const TILE_TOKENS: [u32; 6] = [8, 16, 32, 64, 128, 256];
const STAGES: [u32; 6] = [1, 2, 3, 4, 6, 8];
const SPLITS: [u32; 4] = [1, 2, 4, 8];

/// Of the path `wgmma`, whose tiles may be any multiple of 8 tokens and whose pipelines are deeper.
const WIDE_TOKENS: [u32; 12] = [8, 16, 24, 32, 40, 48, 64, 80, 96, 128, 192, 256];
const DEEP_STAGES: [u32; 11] = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20];
const WARPS: [Warps; 5] =
    [Warps::Specialised(1), Warps::Specialised(2), Warps::Specialised(3), Warps::Specialised(4), Warps::Uniform];
/// Splits of K and clusters, of which a variant has one or the other.
const SHARING: [(u32, Cluster); 8] = [
    (1, Cluster::None),
    (1, Cluster::SplitK(2)),
    (1, Cluster::SplitK(4)),
    (1, Cluster::Multicast(2)),
    (1, Cluster::Multicast(4)),
    (2, Cluster::None),
    (4, Cluster::None),
    (8, Cluster::None),
];

/// The baseline of every comparison and the last rung of every fallback: one stage, a 128×128 tile, and for a dual GEMM
/// two launches and an elementwise kernel. Slow, obviously right, legal for every legal problem on every architecture
/// (for prepared weights, on sm_90a).
#[must_use]
pub fn baseline(problem: &Problem) -> Variant {
    let fusion = match problem.operation() {
        Operation::Gemm => Fusion::Single,
        Operation::DualGemm(_) => Fusion::TwoPass,
    };
    let mma = Variant::mma(Tile { tokens: 128, columns: 128, k: 64 }, 1, fusion, 1);
    if !problem.is_prepared() {
        return mma;
    }
    let prepass = problem.a_format() == Format::Nvfp4;
    Variant { warps: Warps::Uniform, epilogue: Epilogue::Direct, prepass, ..Variant::wgmma(mma.tile, 1, fusion, 2) }
}

/// Every legal variant of a problem on an architecture, over the axis values that are worth searching, with
/// fusions outermost. (Legal values between them, such as 56 tokens or 7 stages, can be pinned.)
pub fn space(problem: &Problem, arch: &Arch) -> Box<dyn Iterator<Item = Spec>> {
    let (problem, arch) = (*problem, *arch);
    let legal = move |variant| Spec::check(&problem, &variant, &arch).ok();
    if problem.is_prepared() {
        Box::new(wgmma_variants(problem).filter_map(legal))
    } else {
        Box::new(mma_variants().filter_map(legal))
    }
}

fn mma_variants() -> impl Iterator<Item = Variant> {
    Fusion::ALL.iter().copied().flat_map(|fusion| {
        tiles(&TILE_TOKENS, TILE_COLUMNS).flat_map(move |tile| {
            SPLITS.into_iter().flat_map(move |split_k| {
                STAGES.into_iter().map(move |stages| Variant::mma(tile, stages, fusion, split_k))
            })
        })
    })
}

fn wgmma_variants(problem: Problem) -> impl Iterator<Item = Variant> {
    let step = super::geometry::tile_columns(&problem);
    let decoding: &[bool] = if problem.a_format() == Format::Nvfp4 { &[true, false] } else { &[false] };
    Fusion::ALL.iter().copied().flat_map(move |fusion| {
        tiles(&WIDE_TOKENS, [step, 2 * step, 3 * step, 4 * step]).flat_map(move |tile| {
            WARPS.into_iter().flat_map(move |warps| {
                SHARING.into_iter().flat_map(move |(split_k, cluster)| {
                    Epilogue::ALL.iter().flat_map(move |epilogue| {
                        [false, true].into_iter().flat_map(move |persistent| {
                            decoding.iter().flat_map(move |prepass| {
                                let (epilogue, prepass) = (*epilogue, *prepass);
                                let base = Variant::wgmma(tile, 1, fusion, 1);
                                let base = Variant { warps, split_k, cluster, epilogue, persistent, prepass, ..base };
                                DEEP_STAGES.into_iter().map(move |stages| Variant { stages, ..base })
                            })
                        })
                    })
                })
            })
        })
    })
}

fn tiles(tokens: &'static [u32], columns: [u32; 4]) -> impl Iterator<Item = Tile> {
    tokens.iter().flat_map(move |&tokens| {
        columns.into_iter().flat_map(move |columns| TILE_K.into_iter().map(move |k| Tile { tokens, columns, k }))
    })
}
