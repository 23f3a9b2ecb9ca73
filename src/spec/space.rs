//! The variants there are for a problem.

use super::checked::{TILE_COLUMNS, TILE_K};
use super::{Arch, Fusion, Operation, Problem, Spec, Tile, Variant};

const TILE_TOKENS: [u32; 6] = [8, 16, 32, 64, 128, 256];
const STAGES: [u32; 6] = [1, 2, 3, 4, 6, 8];
const SPLITS: [u32; 4] = [1, 2, 4, 8];

/// The baseline of every comparison and the last rung of every fallback: one stage, a 128×128 tile, and for a dual GEMM
/// two launches and an elementwise kernel. Slow, obviously right, legal for every legal problem on every architecture.
#[must_use]
pub fn baseline(operation: Operation) -> Variant {
    let fusion = match operation {
        Operation::Gemm => Fusion::Single,
        Operation::DualGemm(_) => Fusion::TwoPass,
    };
    Variant::mma(Tile { tokens: 128, columns: 128, k: 64 }, 1, fusion, 1)
}

/// Every legal variant of a problem on an architecture, over the axis values that are worth searching, with
/// fusions outermost, then tiles, splits and stages. (Legal values between them, such as
/// 24 tokens or 5 stages, can be pinned.)
pub fn space(problem: &Problem, arch: &Arch) -> impl Iterator<Item = Spec> + use<> {
    let (problem, arch) = (*problem, *arch);
    Fusion::ALL.iter().copied().flat_map(move |fusion| {
        tiles().flat_map(move |tile| {
            SPLITS.into_iter().flat_map(move |split_k| {
                STAGES.into_iter().filter_map(move |stages| {
                    let variant = Variant::mma(tile, stages, fusion, split_k);
                    Spec::check(&problem, &variant, &arch).ok()
                })
            })
        })
    })
}

fn tiles() -> impl Iterator<Item = Tile> {
    TILE_TOKENS.into_iter().flat_map(|tokens| {
        TILE_COLUMNS.into_iter().flat_map(move |columns| TILE_K.into_iter().map(move |k| Tile { tokens, columns, k }))
    })
}
