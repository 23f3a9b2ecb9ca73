//! What is chosen where nothing was measured.

use std::cmp::Reverse;

use super::choice::Choice;
use super::ladder;
use crate::error::{Error, Result};
use crate::spec::{Arch, Numerics, Problem, Spec, space};

/// The heuristic's choice, of the variants that add up as `class` says, if one is given.
///
/// # Errors
/// Unsupported, if no variant is legal, or none of the class.
pub(super) fn choose(problem: &Problem, m: u32, arch: &Arch, class: Option<&Numerics>) -> Result<Choice> {
    let choice = ladder::choose(problem, m, arch)?;
    let Some(class) = class else { return Ok(choice) };
    if choice.spec().numerics() == *class {
        return Ok(choice);
    }
    let legal = space(problem, arch).filter(|spec| spec.numerics() == *class && spec.fits_grid(m));
    let spec = legal.min_by_key(|spec| effort(spec, m)).ok_or_else(|| {
        Error::unsupported(format!("{problem} on {arch}: no legal variant for {m} rows adds up as {class}"))
    })?;
    Ok(Choice::new(spec, ladder::numbers(&spec, m)))
}

/// Rounds of the whole device times what a round takes of each SM; then the usual fusion, and more stages up to four.
fn effort(spec: &Spec, m: u32) -> impl Ord + use<> {
    let (problem, variant) = (spec.problem(), spec.variant());
    let resident = spec.geometry().blocks_per_sm;
    let tile = variant.tile;
    let blocks = ladder::blocks(problem, m, tile) * variant.split_k * variant.cluster.splits();
    let rounds = u64::from(blocks.div_ceil(resident * spec.arch().sms()));
    let work = rounds * u64::from(resident) * u64::from(tile.tokens * tile.columns);
    (work, variant.fusion != ladder::fusion(problem), Reverse(variant.stages.min(4)), variant.stages)
}
