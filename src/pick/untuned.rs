//! What is chosen where nothing was measured.

use std::cell::OnceCell;
use std::cmp::Reverse;

use super::choice::Choice;
use super::ladder;
use super::wgmma::{BYTES_PER_CYCLE, FIXED_CYCLES};
use crate::error::{Error, Result};
use crate::spec::{Arch, Numerics, Problem, Spec, space};

/// Of one SM, on an H200.
const MULTIPLICATIONS_PER_CYCLE: u64 = 2048;

/// The heuristic for one problem, for as many M as are asked for.
pub(super) struct Untuned<'a> {
    problem: &'a Problem,
    arch: &'a Arch,
    class: Option<&'a Numerics>,
    /// Every legal variant of the class, once it has been needed.
    of_class: OnceCell<Vec<Spec>>,
}

impl<'a> Untuned<'a> {
    /// Chooses of the variants that add up as `class` says, if one is given.
    pub(super) fn new(problem: &'a Problem, arch: &'a Arch, class: Option<&'a Numerics>) -> Self {
        Self { problem, arch, class, of_class: OnceCell::new() }
    }

    /// # Errors
    /// Unsupported, if no variant is legal, or none of the class.
    pub(super) fn choose(&self, m: u32) -> Result<Choice> {
        let Self { problem, arch, class, of_class } = self;
        let choice = ladder::choose(problem, m, arch)?;
        let Some(class) = class else { return Ok(choice) };
        if choice.spec().numerics() == **class {
            return Ok(choice);
        }
        let all = of_class.get_or_init(|| space(problem, arch).filter(|spec| spec.numerics() == **class).collect());
        let legal = all.iter().filter(|spec| spec.fits_grid(m));
        let spec = legal.min_by_key(|spec| effort(spec, m)).ok_or_else(|| {
            Error::unsupported(format!("{problem} on {arch}: no legal variant for {m} rows adds up as {class}"))
        })?;
        Ok(Choice::new(*spec, ladder::numbers(spec, m)))
    }
}

/// Clock cycles; then the usual fusion, and more stages up to four.
fn effort(spec: &Spec, m: u32) -> impl Ord + use<> {
    let variant = spec.variant();
    let is_unusual = variant.fusion != ladder::fusion(spec.problem());
    (cycles(spec, m), is_unusual, Reverse(variant.stages.min(4)), variant.stages)
}

/// What a variant is estimated to take for `m` rows, to be compared with others of the same problem and M.
pub(super) fn predicted(spec: &Spec, m: u32) -> f64 {
    cycles(spec, m) as f64
}

/// Clock cycles of the busiest SM, by what limits a block: the tensor core, or what reaches its SM.
fn cycles(spec: &Spec, m: u32) -> u64 {
    let (problem, variant, geometry) = (spec.problem(), spec.variant(), spec.geometry());
    let (tile, splits) = (variant.tile, variant.split_k * variant.cluster.splits());
    let blocks = ladder::blocks(problem, m, tile).saturating_mul(splits).div_ceil(spec.arch().sms());
    let rounds = u64::from(blocks.div_ceil(geometry.blocks_per_sm));
    let stages = u64::from(spec.k_tiles().div_ceil(splits));
    let multiplications = u64::from(tile.tokens * tile.columns * problem.operation().products()) * u64::from(tile.k);
    let stage = (multiplications / MULTIPLICATIONS_PER_CYCLE).max(u64::from(geometry.stage_bytes) / BYTES_PER_CYCLE);
    let launches = spec.passes(m).count() as u64;
    FIXED_CYCLES * (launches + rounds) + u64::from(blocks) * stages * stage
}
