//! What is chosen where nothing was measured.

use std::cmp::Reverse;

use super::choice::Choice;
use super::ladder;
use super::wgmma::{BYTES_PER_CYCLE, FIXED_CYCLES};
use crate::error::{Error, Result};
use crate::spec::{Arch, Numerics, Problem, Spec, space};

/// Of one SM, on an H200.
const MULTIPLICATIONS_PER_CYCLE: u64 = 2048;

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

/// Clock cycles by what limits a block, the tensor core or what reaches its SM; then the usual fusion, and more stages up
/// to four.
fn effort(spec: &Spec, m: u32) -> impl Ord + use<> {
    let (problem, variant, geometry) = (spec.problem(), spec.variant(), spec.geometry());
    let (tile, splits) = (variant.tile, variant.split_k * variant.cluster.splits());
    let blocks = ladder::blocks(problem, m, tile).saturating_mul(splits);
    let rounds = u64::from(blocks.div_ceil(geometry.blocks_per_sm * spec.arch().sms()));
    let stages = u64::from(spec.k_tiles().div_ceil(splits));
    let multiplications = u64::from(tile.tokens * tile.columns * problem.operation().products()) * u64::from(tile.k);
    let stage = (multiplications / MULTIPLICATIONS_PER_CYCLE).max(u64::from(geometry.stage_bytes) / BYTES_PER_CYCLE);
    let launches = spec.passes(m).count() as u64;
    let cycles = FIXED_CYCLES * launches + rounds * (FIXED_CYCLES + u64::from(geometry.blocks_per_sm) * stages * stage);
    (cycles, variant.fusion != ladder::fusion(problem), Reverse(variant.stages.min(4)), variant.stages)
}
