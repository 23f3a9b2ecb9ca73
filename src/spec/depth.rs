//! How deep a pipeline can be.

use std::iter;

use super::{Arch, Geometry, Problem, Spec, Variant, legal};

/// Stages at most.
pub(crate) const STAGES_MAX: u32 = 32;

/// A variant with as many stages as shared memory holds when an SM has one block of it, two, … : the deepest first, and of
/// those that leave an SM as many blocks the deepest only. Stages that are not legal, or that `accepts` does not take, are
/// passed over.
pub fn deepest<'a>(
    problem: &'a Problem,
    variant: &Variant,
    arch: &'a Arch,
    accepts: &'a dyn Fn(&Spec) -> bool,
) -> impl Iterator<Item = Spec> + use<'a> {
    let variant = *variant;
    // Sizes of what cannot be legal may be more than numbers hold.
    let can_be_legal = legal::check_problem(problem).is_ok() && Spec::can_combine(problem, &variant);
    let one = can_be_legal.then(|| Geometry::new(problem, &Variant { stages: 1, ..variant }, arch));
    let stage = one.map_or(1, |one| one.stage_bytes.max(1));
    let mut stages = one.map_or(0, |_| STAGES_MAX.min(arch.shared_per_block() / stage));
    let mut blocks = 0;
    let mut last: Option<Spec> = None;
    iter::from_fn(move || {
        let one = one?;
        // With one stage an SM holds the most.
        while stages > 0 && blocks < one.blocks_per_sm {
            let depth = stages;
            stages -= 1;
            let is_legal = match &mut last {
                // The problem has been checked.
                Some(spec) => spec.set_stages(depth),
                None => {
                    last = Spec::check(problem, &Variant { stages: depth, ..variant }, arch).ok();
                    last.is_some()
                }
            };
            let Some(spec) = last.as_ref().filter(|_| is_legal) else { continue };
            if spec.geometry().blocks_per_sm > blocks && accepts(spec) {
                blocks = spec.geometry().blocks_per_sm;
                stages = stages.min(arch.shared_for_blocks(blocks + 1) / stage);
                return Some(*spec);
            }
        }
        None
    })
}
