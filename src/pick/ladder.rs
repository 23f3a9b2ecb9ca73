//! From the rules of a path to a legal choice.

use super::choice::{Choice, Reason};
use super::{mma, wgmma};
use crate::error::Result;
use crate::spec::{Arch, Fusion, Operation, Problem, Spec, Tile, Variant, baseline};

pub(super) fn choose(problem: &Problem, m: u32, arch: &Arch) -> Result<Choice> {
    let wanted = if problem.is_prepared() { wgmma::wanted(problem, m, arch) } else { mma::wanted(problem, m, arch) };
    let Some(spec) = shrink_to_fit(problem, wanted, arch) else {
        let spec = Spec::new(problem, &baseline(problem), arch)?;
        return Ok(Choice::new(spec, Reason::NothingLegal { wanted }));
    };
    Ok(Choice::new(spec, numbers(&spec, m)))
}

/// The numbers that speak for a variant.
pub(super) fn numbers(spec: &Spec, m: u32) -> Reason {
    let (problem, variant, arch) = (spec.problem(), spec.variant(), spec.arch());
    let tile = variant.tile;
    let room = u64::from(token_tiles(problem, m, tile.tokens)) * u64::from(tile.tokens);
    let splits = variant.split_k * variant.cluster.splits();
    Reason::Ladder {
        blocks: blocks(problem, m, tile).saturating_mul(splits),
        sms: arch.sms(),
        rows_percent: u32::try_from(100 * u64::from(m) / room).unwrap_or(100),
        equal_groups: problem.groups().is_some(),
    }
}

/// The nearest legal variant with fewer stages, or else a shallower tile; with a single stage only if there is no other.
fn shrink_to_fit(problem: &Problem, wanted: Variant, arch: &Arch) -> Option<Spec> {
    let shallower = Variant { tile: Tile { k: 64, ..wanted.tile }, ..wanted };
    [wanted, shallower].into_iter().find_map(|variant| {
        (2..=variant.stages).rev().find_map(|stages| Spec::check(problem, &Variant { stages, ..variant }, arch).ok())
    })
}

/// Both products at once, where there are two.
pub(super) fn fusion(problem: &Problem) -> Fusion {
    match problem.operation() {
        Operation::Gemm => Fusion::Single,
        Operation::DualGemm(_) => Fusion::Interleaved,
    }
}

/// Blocks of a tile each.
pub(super) fn blocks(problem: &Problem, m: u32, tile: Tile) -> u32 {
    token_tiles(problem, m, tile.tokens).saturating_mul(problem.columns().div_ceil(tile.columns))
}

/// Tiles of tokens that hold rows; for groups, as if all had the same number.
pub(super) fn token_tiles(problem: &Problem, m: u32, tokens: u32) -> u32 {
    let groups = problem.groups().unwrap_or(1).clamp(1, m.max(1));
    m.div_ceil(groups).max(1).div_ceil(tokens) * groups
}
