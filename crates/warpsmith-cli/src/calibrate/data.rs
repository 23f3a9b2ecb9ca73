//! What was measured, by problem and M.

use std::collections::BTreeMap;

use warpsmith::spec::{Arch, Problem, Spec, Variant};

use super::list::{self, Item};
use super::record::{Line, Phase};
use super::rounds::{Rounds, median};
use crate::shared::Result;

/// A problem at an M, with what was measured of it.
pub struct Pair {
    pub problem: Problem,
    pub m: u32,
    pub held_out: bool,
    /// Variants with their µs, on one clock: of the timings in turn where there are any.
    pub timed: Vec<(Spec, f64)>,
    /// The shortest time.
    pub best: f64,
}

impl Pair {
    /// The time of a variant, if it was measured.
    pub fn us(&self, variant: &Variant) -> Option<f64> {
        self.timed.iter().find(|(spec, _)| spec.variant() == variant).map(|(_, us)| *us)
    }
}

/// Brief timings, and those in turn.
#[derive(Default)]
struct Timings {
    brief: Rounds,
    in_turn: Rounds,
}

impl Timings {
    /// By the spelling of variants. A brief timing is some per cent off, for all of them alike: it is scaled by what the timings
    /// in turn say of the same variants.
    fn on_one_clock(self) -> BTreeMap<String, f64> {
        let [brief, mut known] = [self.brief, self.in_turn].map(Rounds::on_one_clock);
        let scale = median(brief.iter().filter_map(|(variant, us)| Some(known.get(variant)? / us)).collect());
        for (variant, us) in brief {
            known.entry(variant).or_insert(us * scale.unwrap_or(1.0));
        }
        known
    }
}

/// Sorts lines by problem and M. Variants that are no longer legal are left out.
///
/// # Errors
/// Those of the lists.
pub fn pairs(lines: &[Line], arch: &Arch) -> Result<Vec<Pair>> {
    let mut pairs: BTreeMap<(String, u32), Timings> = BTreeMap::new();
    for line in lines.iter().filter(|line| matches!(line.phase, Phase::Short | Phase::Full)) {
        let Timings { brief, in_turn } = pairs.entry((line.problem.to_string(), line.m)).or_default();
        let (own, other) = if line.phase == Phase::Full { (in_turn, brief) } else { (brief, in_turn) };
        other.end();
        own.add(&line.variant.to_string(), line.us[0]);
    }
    let items = list::held_out()?;
    let in_e4m3: Vec<_> = items.iter().filter_map(Item::in_e4m3).collect();
    let held_out: Vec<Problem> = items.iter().chain(&in_e4m3).map(|item| item.problem).collect();
    let pair = |((problem, m), timings): ((String, u32), Timings)| {
        let problem: Problem = problem.parse().ok()?;
        let timed: Vec<(Spec, f64)> = timings
            .on_one_clock()
            .into_iter()
            .filter_map(|(variant, us)| Some((Spec::check(&problem, &variant.parse().ok()?, arch).ok()?, us)))
            .collect();
        let best = timed.iter().map(|(_, us)| *us).fold(f64::INFINITY, f64::min);
        best.is_finite().then(|| Pair { problem, m, held_out: held_out.contains(&problem), timed, best })
    };
    Ok(pairs.into_iter().filter_map(pair).collect())
}
