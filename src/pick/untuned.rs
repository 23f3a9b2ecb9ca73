//! What is chosen where nothing was measured.

use super::choice::{Choice, Reason};
use super::heuristic::{self, Ranked};
use crate::error::{Error, Result};
use crate::routing::Load;
use crate::spec::{Arch, Numerics, Problem, Spec, baseline};

/// As [`choose_for`], for `m` rows, which fall into groups as expected.
pub(super) fn choose(problem: &Problem, m: u32, arch: &Arch, class: Option<&Numerics>) -> Result<Choice> {
    choose_for(problem, &problem.load(m), arch, class)
}

/// The heuristic's first, of the variants that add up as `class` says, if one is given.
pub(super) fn first(problem: &Problem, load: &Load, arch: &Arch, class: Option<&Numerics>) -> Option<Ranked> {
    let accepts = |spec: &Spec| is_of_class(spec, class);
    heuristic::first_for(problem, load, arch, &accepts)
}

fn is_of_class(spec: &Spec, class: Option<&Numerics>) -> bool {
    class.is_none_or(|class| spec.numerics() == *class)
}

/// The heuristic's [`first`]; the baseline where it has none.
///
/// # Errors
/// Unsupported, if no variant is legal, or none of the class.
pub(super) fn choose_for(problem: &Problem, load: &Load, arch: &Arch, class: Option<&Numerics>) -> Result<Choice> {
    let m = load.m();
    if let Some(Ranked { spec, .. }) = first(problem, load, arch, class) {
        return Ok(predicted(spec, load));
    }
    let spec = Spec::new(problem, &baseline(problem), arch)?;
    if spec.fits_grid(m) && is_of_class(&spec, class) {
        return Ok(Choice::new(spec, Reason::NothingElse));
    }
    let of_class = class.map(|class| format!(" adds up as {class}")).unwrap_or_else(|| " fits a grid".to_owned());
    Err(Error::unsupported(format!("{problem} on {arch}: no legal variant for {m} rows{of_class}")))
}

/// A choice for which a prediction speaks.
pub(super) fn predicted(spec: Spec, load: &Load) -> Choice {
    let prediction = heuristic::predict_for(&spec, load);
    Choice::new(spec, Reason::Predicted { m: load.m(), prediction })
}
