//! From what came of a tuning to a line of the table and a row of the report.

use std::ops::RangeInclusive;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use warpsmith::internal::pick::heuristic::{load_of, predict_for};
use warpsmith::internal::pick::{Entry, Evidence, Measured};
use warpsmith::internal::spec::baseline;
use warpsmith::spec::{Arch, Problem, Spec, Variant};
use warpsmith_tune::{Comparison, Outcome, Standing, Tried, Verdict};

use super::report::{Candidate, Row};

/// What decisions are taken with.
pub struct Means {
    /// What the driver calls the device.
    pub device: String,
    pub arch: Arch,
    /// The CUDA version of the driver.
    pub driver: String,
    /// The version of NVRTC.
    pub nvrtc: String,
}

impl Means {
    /// The device in words.
    pub fn machine(&self) -> String {
        format!("{}, {} SMs, driver CUDA {}", self.device, self.arch.sms(), self.driver)
    }
}

/// The decision of a problem, as it was asked for, for these rows, of so many candidates; none if there is nothing to save.
pub fn entry(
    outcome: &Outcome,
    problem: &Problem,
    rows: RangeInclusive<u32>,
    candidates: usize,
    means: &Means,
) -> warpsmith::Result<Option<Entry>> {
    let Some(found) = outcome.evidence.filter(|_| outcome.is_conclusive()) else { return Ok(None) };
    let measured = Measured {
        us: found.us,
        over_baseline: over(outcome, found.to_baseline, Some(&baseline(&outcome.problem))),
        over_heuristic: over(outcome, found.to_first, outcome.first.as_ref()),
        spread: found.spread.unwrap_or(0.0),
        candidates: u32::try_from(candidates).unwrap_or(u32::MAX),
    };
    let date = Timestamp::now().to_zoned(TimeZone::UTC).date();
    let evidence = Evidence { measured, driver: means.driver.clone(), nvrtc: means.nvrtc.clone(), date };
    Ok(Some(Entry::new(&means.device, &means.arch, problem, rows, &outcome.choice, evidence)?))
}

/// The rows from which on a decision for `m` is one: behind the largest of the other rows that are smaller, and not below
/// three quarters of `m`, where other tiles fit.
pub fn from_rows(m: u32, others: impl Iterator<Item = u32>) -> u32 {
    let least = m - m / 4;
    others.filter(|other| *other < m).max().map_or(m, |below| least.max(below + 1))
}

/// How many times as fast as the other the choice is: as they were compared or, where there was no time for that, screened;
/// 1 where it is the other itself, or that is not right.
fn over(outcome: &Outcome, comparison: Option<Comparison>, other: Option<&Variant>) -> f64 {
    let screened = |variant: &Variant| {
        outcome.tried.iter().find(|tried| tried.variant == *variant && tried.worst.is_some())?.screened_us
    };
    let as_screened = || Some(screened(other?)? / screened(&outcome.choice)?);
    comparison.map(|comparison| 1.0 / comparison.ratio).or_else(as_screened).unwrap_or(1.0)
}

/// Everything that was tried.
pub fn row(kind: &str, outcome: &Outcome, problem: &Problem, rows: &[u32], arch: &Arch) -> Row {
    let load = load_of(problem, rows);
    let predicted =
        |variant: &Variant| Spec::check(&outcome.problem, variant, arch).ok().map(|spec| predict_for(&spec, &load).us);
    let candidate = |tried: &Tried| Candidate {
        variant: tried.variant.to_string(),
        predicted_us: predicted(&tried.variant),
        measured_us: tried.duel.map(|duel| duel.challenger_us).or(tried.screened_us),
        refused: match &tried.standing {
            Standing::Refused(rejection) => Some(rejection.to_string()),
            _ => None,
        },
    };
    let evidence = outcome.evidence;
    let interval = evidence.and_then(|found| found.to_first?.interval);
    Row {
        kind: kind.to_owned(),
        problem: problem.to_string(),
        m: outcome.m,
        variant: outcome.choice.to_string(),
        source: match &outcome.verdict {
            Verdict::Changed => format!("faster than {}", outcome.incumbent),
            Verdict::Kept => "nothing is faster".to_owned(),
            Verdict::Inconclusive(reason) => format!("inconclusive: {reason}"),
        },
        predicted_us: predicted(&outcome.choice),
        measured_us: evidence.map(|found| found.us),
        over_heuristic: evidence.map(|found| over(outcome, found.to_first, outcome.first.as_ref())),
        over_baseline: evidence.map(|found| over(outcome, found.to_baseline, Some(&baseline(&outcome.problem)))),
        spread: interval.map(|(low, high)| high - low),
        bytes: problem.bytes_of(rows),
        flop: outcome.problem.flop(outcome.m.into()),
        matrix_flop_per_s: problem.flop_per_s(arch),
        seconds: outcome.wall.as_secs_f64(),
        rested: outcome.rested.as_secs_f64(),
        candidates: outcome.tried.iter().map(candidate).collect(),
    }
}
