//! What came of a tuning: the choice, the evidence for it, and everything that was tried.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::{Comparison, Disturbance, Rejection};
use warpsmith::internal::spec::baseline;
use warpsmith::spec::{Problem, Variant};

/// What came of tuning one problem at one M. Its text is a line; the candidates have a line each
/// ([`Outcome::tried`]).
#[derive(Clone, Debug, Serialize)]
#[must_use]
pub struct Outcome {
    /// What is computed.
    #[serde(serialize_with = "as_text")]
    pub problem: Problem,
    /// Rows of A, of all groups together.
    pub m: u32,
    /// What was chosen before.
    #[serde(serialize_with = "as_text")]
    pub incumbent: Variant,
    /// What is to be chosen from now on; the incumbent unless the verdict is [`Verdict::Changed`].
    #[serde(serialize_with = "as_text")]
    pub choice: Variant,
    /// The first of the candidates, which a cost model likes best.
    #[serde(serialize_with = "as_text_if_any")]
    pub first: Option<Variant>,
    /// What happened.
    pub verdict: Verdict,
    /// What speaks for the choice; none if it could not be measured.
    pub evidence: Option<Measurements>,
    /// Everything that was tried, in that order; the incumbent first.
    pub tried: Vec<Tried>,
    /// How long it took, in seconds.
    #[serde(rename = "wall_s", serialize_with = "as_seconds")]
    pub wall: Duration,
    /// How long of that until the first kernel was checked and timed, in seconds: a device to open, operands, a reference.
    #[serde(rename = "ready_s", serialize_with = "as_seconds")]
    pub ready: Duration,
    /// How long of that the device rested, in seconds.
    #[serde(rename = "rested_s", serialize_with = "as_seconds")]
    pub rested: Duration,
    /// Whether the time was up before everything was tried.
    pub out_of_time: bool,
}

/// What a tuning ends with.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Another kernel is faster by more than the margin, or the incumbent is not right.
    Changed,
    /// Nothing is certain to be faster than the incumbent.
    Kept,
    /// Nothing was found out, and nothing is to be saved.
    Inconclusive(WhyInconclusive),
}

/// Why nothing was found out.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WhyInconclusive {
    /// The device was not left alone, however often the two kernels were timed.
    Disturbed(Disturbance),
    /// The caller has stopped it.
    Cancelled,
    /// No kernel is right, the baseline included.
    NothingRight,
    /// The time was up before a challenger was timed, or before it was certain that one is faster.
    OutOfTime,
}

/// What speaks for a choice. Ratios are of its time by another's, so below 1 it is faster.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measurements {
    /// The choice's median, in microseconds a call.
    pub us: f64,
    /// The width of the middle four fifths of its samples, as a share of their median; none if it was only screened.
    pub spread: Option<f64>,
    /// Against what was chosen before; none if that is the choice, or is not right.
    pub to_incumbent: Option<Comparison>,
    /// Against the first of the candidates; none if that is the choice, or is not right.
    pub to_first: Option<Comparison>,
    /// Against the baseline; none if that is the choice, or is not right.
    pub to_baseline: Option<Comparison>,
}

/// Where a candidate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It was chosen before.
    Incumbent,
    /// The baseline of every comparison.
    Baseline,
    /// One of the candidates given, by its place among them, from 0.
    Candidate(usize),
    /// A neighbour of the best so far, in this round, from 1.
    Neighbour(usize),
}

/// One candidate and what became of it. Its text is a line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// How it computes.
    #[serde(serialize_with = "as_text")]
    pub variant: Variant,
    /// Where it comes from.
    pub role: Role,
    /// What became of it.
    pub standing: Standing,
    /// The largest error as a share of its bound; none if it was refused.
    pub worst: Option<f64>,
    /// The median of its short timings, in microseconds a call.
    pub screened_us: Option<f64>,
    /// The last time it was timed in turn with the best so far (or, for the choice, with the incumbent).
    pub duel: Option<Comparison>,
}

/// What became of a candidate.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It may not be chosen.
    Refused(Rejection),
    /// Its short timings were not among the best.
    Screened,
    /// Slower than the best so far.
    Lost,
    /// Not certain to be faster than the best so far or, where that was the incumbent, not by the margin.
    Tied,
    /// Faster than the best so far, until another was faster still.
    Won,
    /// Nothing can be said, since the device was not left alone.
    Disturbed(Disturbance),
    /// It was not beaten: what was chosen before, or is chosen now.
    Stands,
}

impl Outcome {
    /// Whether there is something to save.
    #[must_use]
    pub fn is_conclusive(&self) -> bool {
        !matches!(self.verdict, Verdict::Inconclusive(_))
    }

    /// How many times as fast as the baseline the choice is; none if that is not known.
    #[must_use]
    pub fn over_baseline(&self) -> Option<f64> {
        let evidence = self.evidence.as_ref()?;
        times_as_fast(self.choice == baseline(&self.problem), evidence.to_baseline)
    }

    /// How many times as fast as the first of the candidates the choice is; none if that is not known.
    #[must_use]
    pub fn over_first(&self) -> Option<f64> {
        let evidence = self.evidence.as_ref()?;
        times_as_fast(Some(self.choice) == self.first, evidence.to_first)
    }

    /// How many candidates were refused, by [`Rejection::word`].
    #[must_use]
    pub fn refused(&self) -> BTreeMap<&'static str, usize> {
        let mut refused = BTreeMap::new();
        for tried in &self.tried {
            if let Standing::Refused(rejection) = &tried.standing {
                *refused.entry(rejection.word()).or_default() += 1;
            }
        }
        refused
    }
}

fn times_as_fast(is_itself: bool, comparison: Option<Comparison>) -> Option<f64> {
    if is_itself { Some(1.0) } else { comparison.map(|comparison| 1.0 / comparison.ratio) }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome {
            problem,
            m,
            incumbent,
            choice,
            first: _,
            verdict,
            evidence,
            tried,
            wall,
            ready: _,
            rested,
            out_of_time,
        } = self;
        write!(f, "{problem} m{m}: ")?;
        match verdict {
            Verdict::Changed => write!(f, "{choice} instead of {incumbent}")?,
            Verdict::Kept => write!(f, "{choice} stays")?,
            Verdict::Inconclusive(reason) => write!(f, "inconclusive, {reason}")?,
        }
        if let Some(evidence) = evidence {
            write!(f, "; {evidence}")?;
        }
        write!(f, "; {} tried", tried.len())?;
        for (word, count) in self.refused() {
            write!(f, ", {count} refused ({word})")?;
        }
        let stopped = if *out_of_time { ", out of time" } else { "" };
        let (wall, rested) = (wall.as_secs_f64(), rested.as_secs_f64());
        write!(f, "; {wall:.1} s, {rested:.1} of them at rest{stopped}")
    }
}

impl fmt::Display for Measurements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} µs", self.us)?;
        if let Some(spread) = self.spread {
            write!(f, " ±{:.1} %", spread * 50.0)?;
        }
        let others = [("incumbent", self.to_incumbent), ("first", self.to_first), ("baseline", self.to_baseline)];
        for (whose, comparison) in others {
            if let Some(Comparison { ratio, interval, .. }) = comparison {
                write!(f, ", {ratio:.3} of the {whose}'s")?;
                if let Some((low, high)) = interval {
                    write!(f, " ({low:.3} to {high:.3})")?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for WhyInconclusive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WhyInconclusive::Disturbed(disturbance) => write!(f, "{disturbance}"),
            WhyInconclusive::Cancelled => f.write_str("it was stopped"),
            WhyInconclusive::NothingRight => f.write_str("no kernel is right, the baseline included"),
            WhyInconclusive::OutOfTime => f.write_str("the time was up before anything was certain"),
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Incumbent => f.write_str("incumbent"),
            Role::Baseline => f.write_str("baseline"),
            Role::Candidate(place) => write!(f, "candidate {}", place + 1),
            Role::Neighbour(round) => write!(f, "neighbour, round {round}"),
        }
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.variant, self.role, self.standing)?;
        match (&self.duel, self.screened_us) {
            (Some(duel), _) => write!(f, ", {duel}"),
            (None, Some(us)) => write!(f, ", {us:.2} µs"),
            (None, None) => Ok(()),
        }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Standing::Refused(rejection) => write!(f, "refused, {rejection}"),
            Standing::Screened => f.write_str("screened"),
            Standing::Lost => f.write_str("lost"),
            Standing::Tied => f.write_str("tied"),
            Standing::Won => f.write_str("won"),
            Standing::Disturbed(disturbance) => write!(f, "undecided, {disturbance}"),
            Standing::Stands => f.write_str("stands"),
        }
    }
}

fn as_text<S: Serializer>(value: &impl fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn as_text_if_any<S: Serializer>(value: &Option<impl fmt::Display>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}

fn as_seconds<S: Serializer>(wall: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(wall.as_secs_f64())
}
