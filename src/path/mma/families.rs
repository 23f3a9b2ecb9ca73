//! Which families of variants are worth a look.

use super::geometry::MmaLayout;
use crate::path::families::{Depths, Load};
use crate::path::{Epilogue, Fusion, Tile, Variant};
use crate::problem::{Operation, Problem};

/// How products may be fused by the best of all: both at once, since anything else loads tokens twice or needs a workspace;
/// or one at a time, in larger tiles.
pub(in crate::path) fn fusions(problem: &Problem) -> &'static [Fusion] {
    match problem.operation() {
        Operation::Gemm => &[Fusion::Single],
        Operation::DualGemm(_) => &[Fusion::Interleaved, Fusion::TwoPass],
    }
}

/// Whether the best of all may be of this family.
pub(in crate::path) fn is_family(_: &Problem, family: &Variant) -> bool {
    let Tile { columns, k, .. } = family.tile;
    // Larger stages take the place of a cache; one product at a time is for tiles of which no block holds both.
    columns * k <= 128 * 128 && (family.fusion != Fusion::TwoPass || (columns, k) == (128, 64))
}

/// The height of a family's tiles when it is to be so many tokens or little more; none, if it has no use for them.
pub(in crate::path) fn height(_: &Problem, _: &Variant, tokens: u32) -> Option<u32> {
    Some(tokens)
}

/// Whether one of a family may be the best with this. Any may be: SMs hold several blocks.
pub(in crate::path) fn is_worth(_: &Variant, _: &Load) -> bool {
    true
}

/// How a variant's result leaves, most likely: there is one way.
pub(in crate::path) fn epilogue(_: &Problem, _: &Variant) -> Epilogue {
    Epilogue::Direct
}

/// Depths at which one of a family is predicted first: what more stages hold is not there as a cache.
pub(in crate::path) fn depths() -> Depths {
    Depths::Of(&[6, 3, 2, 1])
}

/// And around a good one with so many stages; all of K has `whole`.
pub(in crate::path) fn depths_around(_: &MmaLayout, stages: u32, whole: u32) -> Vec<u32> {
    vec![stages - 1, stages, stages + 1, stages + 2, whole]
}
