//! Which decisions a manifest asks for, and for which rows one that was taken speaks.

use std::ops::RangeInclusive;

use crate::{Outcome, Verdict};
use warpsmith::engine::{Manifest, Rows};
use warpsmith::internal::engine::KernelSet;
use warpsmith::internal::pick::heuristic::{load, predict_for, rank_for};
use warpsmith::pick::{Choice, Origin, Picker};
use warpsmith::spec::{Problem, Spec, Variant};

use crate::Budget;

/// Up to so many rows one decision speaks for all: the smallest tile of tokens.
const TILE: u32 = 8;
/// Places between a decision's fewest and most rows at which the model is asked whether it holds.
const PLACES: u32 = 8;

/// A decision that a manifest asks for: which kernel serves some rows of a problem. It is taken at the most of them.
#[derive(Clone, Debug)]
pub struct Point {
    problem: Problem,
    rows: RangeInclusive<u32>,
    choice: Choice,
}

impl Point {
    /// Those of a manifest, by problem and falling rows: in each interval of a problem's schedule the most rows that the
    /// manifest has there, then the most up to half as many, and so on; the last is for all that are left. Problems without
    /// a kernel have none.
    #[must_use]
    pub fn all(picker: &Picker, manifest: &Manifest) -> Vec<Point> {
        let set = KernelSet::new(picker, manifest);
        let mut points = Vec::new();
        for problem in set.problems() {
            let (Ok(schedule), Some(rows)) = (picker.schedule(problem), manifest.rows(problem)) else { continue };
            for interval in schedule.intervals().iter().rev() {
                let mut upper = interval.last;
                while let Some(m) = most(rows, interval.first..=upper) {
                    let first = if m <= TILE { interval.first } else { interval.first.max(m / 2 + 1) };
                    points.push(Point { problem: *problem, rows: first..=m, choice: interval.choice });
                    upper = first - 1;
                }
            }
        }
        points
    }

    /// What is computed.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The rows, of all groups together, that the decision is for.
    #[must_use]
    pub fn rows(&self) -> RangeInclusive<u32> {
        self.rows.clone()
    }

    /// The rows that it is taken at: the most of them.
    #[must_use]
    pub fn m(&self) -> u32 {
        *self.rows.end()
    }

    /// What is chosen for them so far.
    #[must_use]
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// Whether it was measured on this model of device, or nothing else is wanted.
    pub(super) fn is_sure(&self) -> bool {
        matches!(self.choice.origin(), Origin::Pinned | Origin::Tuned)
    }

    /// How far its rows reach. The first begin at half a row.
    #[must_use]
    pub fn octaves(&self) -> f64 {
        (f64::from(self.m()) / (f64::from(*self.rows.start()) - 1.0).max(0.5)).log2()
    }
}

/// The most of these rows within a range.
fn most(rows: &Rows, range: RangeInclusive<u32>) -> Option<u32> {
    let (first, last) = range.into_inner();
    let within = rows.ranges().filter(|rows| *rows.start() <= last && *rows.end() >= first);
    within.map(|rows| (*rows.end()).min(last)).max().filter(|_| first <= last)
}

/// What came of a point: nothing, if there was no time for it.
#[derive(Clone, Debug)]
pub struct Decided {
    /// The decision that was asked for.
    pub point: Point,
    /// The tunings, in their order.
    pub outcomes: Vec<Outcome>,
}

impl Decided {
    /// The tuning that decided: the last that came to a conclusion by a comparison, if one did. A longer look that was cut
    /// short before it compared anything says nothing new.
    #[must_use]
    pub fn outcome(&self) -> Option<&Outcome> {
        let compares = |outcome: &&Outcome| {
            outcome.evidence.is_some_and(|found| found.to_incumbent.or(found.to_first).or(found.to_baseline).is_some())
        };
        self.conclusive().filter(compares).last().or_else(|| self.conclusive().last())
    }

    fn conclusive(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(|outcome| outcome.is_conclusive())
    }

    /// The kernels that were tried, each once.
    #[must_use]
    pub fn candidates(&self) -> usize {
        let mut tried: Vec<&Variant> =
            self.outcomes.iter().flat_map(|outcome| &outcome.tried).map(|tried| &tried.variant).collect();
        tried.sort_by_cached_key(ToString::to_string);
        tried.dedup();
        tried.len()
    }

    /// How many times as fast as what was chosen before the decision is; none if that was not right, 1 if it stays.
    #[must_use]
    pub fn gain(&self) -> Option<f64> {
        let changed = self.conclusive().filter(|outcome| outcome.verdict == Verdict::Changed);
        changed.map(|outcome| Some(1.0 / outcome.evidence?.to_incumbent?.ratio)).product()
    }

    /// The rows that the decision speaks for: those of the point down to where, by the cost model corrected by what was
    /// measured at the most of them, what was chosen before would be faster.
    #[must_use]
    pub fn rows(&self) -> RangeInclusive<u32> {
        match (self.outcome(), self.gain()) {
            (Some(outcome), Some(gain)) => self.rows_of(&outcome.choice, gain),
            // Where what was chosen before is wrong, it is for no rows.
            _ => self.point.rows(),
        }
    }

    /// As [`Decided::rows`], of another variant, which is so many times as fast as what was chosen before.
    #[must_use]
    pub fn rows_of(&self, variant: &Variant, gain: f64) -> RangeInclusive<u32> {
        let (first, m) = self.point.rows().into_inner();
        let before = self.point.choice.spec();
        if variant == before.variant() {
            return first..=m;
        }
        let Ok(choice) = Spec::check(&self.point.problem, variant, before.arch()) else { return m..=m };
        let ratio = |m: u32| {
            let load = load(&self.point.problem, m);
            predict_for(&choice, &load).us / predict_for(before, &load).us
        };
        let correction = 1.0 / (gain * ratio(m));
        let places = (1..=PLACES).map(|place| m - (u64::from(m - first) * u64::from(place) / u64::from(PLACES)) as u32);
        places.take_while(|m| ratio(*m) * correction <= 1.0).last().unwrap_or(m)..=m
    }

    /// The right kernels that were timed beside the decision: what each takes, as a share of the decision's time.
    #[must_use]
    pub fn others(&self) -> Vec<(Variant, f64)> {
        let mut others: Vec<(Variant, f64)> = Vec::new();
        let Some(choice) = self.outcome().map(|outcome| outcome.choice) else { return others };
        for outcome in self.outcomes.iter().rev() {
            let right = || outcome.tried.iter().filter(|tried| tried.worst.is_some());
            let Some(own) = right().find(|tried| tried.variant == choice).and_then(|tried| tried.screened_us) else {
                continue;
            };
            for tried in right().filter(|tried| tried.variant != choice) {
                let known = others.iter().any(|(variant, _)| *variant == tried.variant);
                others.extend(tried.screened_us.filter(|_| !known).map(|us| (tried.variant, us / own)));
            }
        }
        others
    }

    /// By how much, as a logarithm, the next candidate would be faster than the decision, if the model errs with it in its
    /// favour by as much as it usually errs here.
    pub(super) fn hope(&self) -> f64 {
        let Some((outcome, found)) = self.outcome().and_then(|outcome| Some((outcome, outcome.evidence?))) else {
            return 0.0;
        };
        let (problem, arch) = (&self.point.problem, self.point.choice.spec().arch());
        let load = load(problem, self.point.m());
        let all = || self.outcomes.iter().flat_map(|outcome| &outcome.tried);
        let errors = all().filter_map(|tried| {
            let us = tried.duel.map(|duel| duel.challenger_us).or(tried.screened_us)?;
            Some((us / predict_for(&Spec::check(&outcome.problem, &tried.variant, arch).ok()?, &load).us).ln())
        });
        let errors: Vec<f64> = errors.collect();
        let mean = errors.iter().sum::<f64>() / errors.len().max(1) as f64;
        let deviation =
            (errors.iter().map(|error| (error - mean).powi(2)).sum::<f64>() / errors.len().max(1) as f64).sqrt();
        let ranked = rank_for(problem, &load, arch, Budget::Normal.candidates(), &|_| true);
        let next = ranked.iter().find(|ranked| all().all(|tried| tried.variant != *ranked.spec.variant()));
        next.map_or(0.0, |next| (found.us / next.prediction.us).ln() - mean + deviation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpsmith::spec::{Activation, Arch};

    fn manifest(problem: &Problem, rows: &str) -> Manifest {
        Manifest::new().with(problem, &rows.parse().unwrap())
    }

    #[test]
    fn every_row_of_a_manifest_is_of_one_point() {
        let dual = Problem::dual_gemm(Activation::Silu).n(4096).k(7168).prepared();
        for problem in [dual, Problem::gemm().n(2048).k(2048), dual.n(2048).grouped(32).experts_per_token(8)] {
            for range in ["1..=8192", "77", "1..=5, 60..=300, 4096", "1, 8, 16, 32, 64, 128, 248, 256, 512, 1024"] {
                let picker = Picker::new("NVIDIA H100", &Arch::H100);
                let manifest = manifest(&problem, range);
                let points = Point::all(&picker, &manifest);
                assert!(points.is_sorted_by(|a, b| a.rows.start() > b.rows.end()), "{problem} {range}");
                for m in manifest.problems().next().unwrap().1.ranges().flatten() {
                    let of: Vec<_> = points.iter().filter(|point| point.rows.contains(&m)).collect();
                    assert_eq!(of.len(), 1, "{problem} {range}: {m}");
                    assert_eq!(of[0].choice.spec(), picker.choose(&problem, m).unwrap().spec());
                }
                for point in &points {
                    assert!(manifest.rows(&problem).unwrap().contains(point.m()), "{problem} {range}: {point:?}");
                    assert!(point.octaves() <= 4.0 && point.octaves() > 0.0, "{point:?}");
                }
                // Octaves, intervals of a schedule that has few, and those of the table.
                assert!(points.len() <= 32, "{} for {problem} {range}", points.len());
            }
        }
    }

    #[test]
    fn a_problem_without_a_kernel_has_no_point() {
        let picker = Picker::new("NVIDIA A100", &Arch::A100);
        assert!(Point::all(&picker, &manifest(&Problem::gemm().n(4096).k(4096).prepared(), "1..=64")).is_empty());
    }
}
