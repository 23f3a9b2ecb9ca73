//! What was measured, by problem and M.

use std::collections::BTreeMap;

use warpsmith::spec::{Arch, Problem, Spec, Variant};

use super::list;
use super::record::{Line, Phase};
use crate::shared::Result;

/// A problem at an M, with what was measured of it.
pub struct Pair {
    pub problem: Problem,
    pub m: u32,
    pub held_out: bool,
    /// Variants with their µs: of the timing in turn where there is one.
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

/// Of a variant, by spelling: the shortest of its brief timings and of those in turn.
type Timings = BTreeMap<String, [Option<f64>; 2]>;

/// Sorts lines by problem and M. Variants that are no longer legal are left out.
///
/// A brief timing is some per cent off, for all variants of a pair alike: it is scaled by what the timings in turn say of
/// the same variants.
///
/// # Errors
/// Those of the lists.
pub fn pairs(lines: &[Line], arch: &Arch) -> Result<Vec<Pair>> {
    let mut pairs: BTreeMap<(String, u32), Timings> = BTreeMap::new();
    for line in lines {
        let at = match line.phase {
            Phase::Short => 0,
            Phase::Full => 1,
            Phase::Refused | Phase::Fatal => continue,
        };
        let variants = pairs.entry((line.problem.to_string(), line.m)).or_default();
        let known = &mut variants.entry(line.variant.to_string()).or_default()[at];
        *known = Some(known.map_or(line.us[0], |us| us.min(line.us[0])));
    }
    let items = [list::list()?, list::held_out()?].concat();
    let held_out: Vec<Problem> = items.iter().filter(|item| item.held_out).map(|item| item.problem).collect();
    let pair = |((problem, m), variants): ((String, u32), Timings)| {
        let problem: Problem = problem.parse().ok()?;
        let mut ratios: Vec<f64> = variants.values().filter_map(|us| Some(us[1]? / us[0]?)).collect();
        ratios.sort_by(f64::total_cmp);
        let scale = ratios.get(ratios.len() / 2).copied().unwrap_or(1.0);
        let timed: Vec<(Spec, f64)> = variants
            .iter()
            .filter_map(|(variant, us)| {
                let spec = Spec::check(&problem, &variant.parse().ok()?, arch).ok()?;
                Some((spec, us[1].or_else(|| Some(us[0]? * scale))?))
            })
            .collect();
        let best = timed.iter().map(|(_, us)| *us).fold(f64::INFINITY, f64::min);
        best.is_finite().then(|| Pair { problem, m, held_out: held_out.contains(&problem), timed, best })
    };
    Ok(pairs.into_iter().filter_map(pair).collect())
}
