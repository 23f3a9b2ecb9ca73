//! From what was measured to a decision, by the debate's own rules.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::proposals::{KEEP, REVERT, SHARED_PER_SM};
use super::report::Cell;

/// One value of an axis over all cases.
#[derive(Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Geometric mean of the speed-ups; none unless every case that has the axis was measured.
    pub speed_up: Option<f64>,
    /// And for each kind of problem, over those of its cases that were.
    pub by_kind: BTreeMap<String, f64>,
    /// Cases that have the axis, and those of them where it was legal, and where it was right.
    pub cases: usize,
    pub legal: usize,
    pub right: usize,
    /// The most shared memory of an SM that any of its kernels takes, in bytes.
    pub shared_per_sm: Option<u32>,
    pub against_claim: Option<Against>,
    /// None without times.
    pub decision: Option<Decision>,
    /// Why, in a clause.
    pub reason: String,
}

/// What was measured beside what was promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Against {
    Below,
    Within,
    Above,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    Keep,
    Judge,
    Revert,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Decision::Keep => "keep",
            Decision::Judge => "judge",
            Decision::Revert => "revert",
        })
    }
}

/// The geometric mean; none of nothing.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    let logarithms: f64 = values.iter().map(|value| value.ln()).sum();
    (!values.is_empty()).then(|| (logarithms / values.len() as f64).exp())
}

/// What `cells`, each with the kind of its problem, come to.
pub fn summary(cells: &[(&str, &Cell)], claim: Option<(f64, f64)>, has_times: bool) -> Summary {
    let having: Vec<_> = cells.iter().filter(|(_, cell)| !matches!(cell, Cell::NotApplicable)).collect();
    let legal = having.iter().filter(|(_, cell)| !matches!(cell, Cell::Refused { .. })).count();
    let failed = having.iter().filter(|(_, cell)| matches!(cell, Cell::Failed { .. } | Cell::Wrong { .. })).count();
    let mut kinds: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (kind, measured) in having.iter().filter_map(|(kind, cell)| Some((kind, cell.measured()?))) {
        kinds.entry((*kind).to_owned()).or_default().push(measured.speed_up);
    }
    let all: Vec<f64> = kinds.values().flatten().copied().collect();
    let speed_up = geometric_mean(&all).filter(|_| all.len() == having.len());
    let shared_per_sm = having.iter().filter_map(|(_, cell)| Some(cell.resources()?.shared_per_sm)).max();
    let by_kind = kinds.into_iter().filter_map(|(kind, of)| Some((kind, geometric_mean(&of)?))).collect();
    let (decision, reason) = if having.is_empty() {
        (None, "no problem has this axis".to_owned())
    } else if legal < having.len() {
        (has_times.then_some(Decision::Revert), format!("legal on {legal} of {} problems", having.len()))
    } else if failed > 0 {
        (Some(Decision::Revert), format!("fails on {failed} of {legal} problems"))
    } else {
        judge(speed_up, shared_per_sm)
    };
    let against = |(low, high): (f64, f64), speed_up: f64| match speed_up {
        slower if slower < low => Against::Below,
        faster if faster > high => Against::Above,
        _ => Against::Within,
    };
    Summary {
        speed_up,
        by_kind,
        cases: having.len(),
        legal,
        right: legal - failed,
        shared_per_sm,
        against_claim: claim.zip(speed_up).map(|(claim, speed_up)| against(claim, speed_up)),
        decision,
        reason,
    }
}

/// The rules, for what is legal and right everywhere.
fn judge(speed_up: Option<f64>, shared_per_sm: Option<u32>) -> (Option<Decision>, String) {
    let Some(speed_up) = speed_up else { return (None, "built, not timed".to_owned()) };
    let (decision, reason) = match speed_up {
        fast if fast >= KEEP => (Decision::Keep, format!("at least {KEEP:.1}×")),
        slow if slow < REVERT => (Decision::Revert, format!("below {REVERT:.1}×")),
        _ => (Decision::Judge, format!("between {REVERT:.1}× and {KEEP:.1}×")),
    };
    match shared_per_sm.filter(|shared| *shared >= SHARED_PER_SM) {
        None => (Some(decision), reason),
        Some(shared) => {
            let (kib, most) = (shared / 1024, SHARED_PER_SM / 1024);
            let reason = format!("{kib} KiB of shared memory an SM, below {most} allowed (by its speed: {decision})");
            (Some(Decision::Revert), reason)
        }
    }
}
