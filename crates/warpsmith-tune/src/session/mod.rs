//! Many decisions within a stated time.
//!
//! First each point gets a fair share of what is left, for a quick tuning: the one with the most octaves of rows of each
//! problem, then the next two of each, then four, so that where the time is short every problem has something, and points of
//! a problem follow each other, which have their weights in common. A share is never too short for a tuning: then some get
//! none. A point whose operands alone take far more than its share waits until the others have had theirs. What is left goes to
//! points again, for a longer look: to those without a conclusion, to those whose time was up, and then to those where the model
//! hopes for most.

mod point;

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

pub use point::{Decided, Point};

use crate::setup::AWKWARD_MAX;
use crate::{Budget, Clock, Outcome, Verdict, WhyInconclusive, adversarial};
use warpsmith::spec::Problem;

/// What a tuning is taken to need before any has ended.
const FIRST: Duration = Duration::from_secs(3);
/// A longer look gets at least so many times what a quick one took.
const LONGER: u32 = 2;
/// A point whose operands take more than so many shares waits for the others.
const SHARES: u32 = 2;
/// FLOP of a problem for which operands and a reference are made in a second, before any have been: by 16 cores.
const RATE: f64 = 3.5e10;

/// How far a point is tuned in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// How far to search.
    pub budget: Budget,
    /// For how long.
    pub limit: Duration,
}

/// Tunes `points` until `clock` says `until`, by `tune`, which keeps to its turn's limit; `found` is told of a point each time
/// that it was. None is begun that is not expected
/// to have its first kernel checked by then, as opening a device with operands and a reference took so far. Gives each
/// point once, in the given order.
///
/// # Errors
/// Those of `tune` and `found`, which end it.
pub fn tune_within<E>(
    points: Vec<Point>,
    until: Duration,
    clock: &dyn Clock,
    mut tune: impl FnMut(&Point, Turn) -> Result<Outcome, E>,
    mut found: impl FnMut(&Decided) -> Result<(), E>,
) -> Result<Vec<Decided>, E> {
    let decided = points.into_iter().map(|point| Decided { point, outcomes: Vec::new() }).collect();
    let mut session = Session { decided, until, clock, readiness: Readiness::default(), quick: Vec::new() };
    let first = session.in_turn();
    session.pass(&first, Budget::Quick, &mut tune, &mut found)?;
    let again = session.unsure();
    session.pass(&again, Budget::Normal, &mut tune, &mut found)?;
    Ok(session.decided)
}

struct Session<'a> {
    decided: Vec<Decided>,
    until: Duration,
    clock: &'a dyn Clock,
    readiness: Readiness,
    /// What quick tunings took that came to a conclusion.
    quick: Vec<Duration>,
}

impl Session<'_> {
    /// The points that nothing was measured for: of each problem the one with the most octaves, then of each the next two,
    /// and so on. A round begins with the problem that the one before ended with.
    fn in_turn(&self) -> Vec<usize> {
        let mut open: Vec<usize> = (0..self.decided.len()).filter(|at| !self.decided[*at].point.is_sure()).collect();
        open.sort_by(|a, b| self.decided[*b].point.octaves().total_cmp(&self.decided[*a].point.octaves()));
        // Of each problem its place, and how many points it has had.
        let mut seen: HashMap<Problem, (i64, u32)> = HashMap::new();
        let mut ranked = Vec::new();
        for at in open {
            let places = seen.len() as i64;
            let (place, rank) = seen.entry(*self.decided[at].point.problem()).or_insert((places, 0));
            let round = (*rank + 1).ilog2();
            ranked.push(((round, if round % 2 == 0 { *place } else { -*place }), at));
            *rank += 1;
        }
        ranked.sort_by_key(|(key, _)| *key);
        ranked.into_iter().map(|(_, at)| at).collect()
    }

    /// All points of which more may be found out, the least sure first.
    fn unsure(&self) -> Vec<usize> {
        let doubt = |decided: &Decided| match decided.outcomes.last() {
            // Nothing is right; trying again ends the same.
            Some(Outcome { verdict: Verdict::Inconclusive(WhyInconclusive::NothingRight), .. }) => None,
            Some(outcome) if !outcome.is_conclusive() => Some((2, 0.0)),
            Some(outcome) if outcome.out_of_time => Some((1, decided.hope())),
            Some(_) => Some((0, decided.hope())),
            None if decided.point.is_sure() => Some((0, f64::NEG_INFINITY)),
            None => Some((2, 0.0)),
        };
        let all = self.decided.iter().enumerate();
        let mut unsure: Vec<_> = all.filter_map(|(at, decided)| Some((doubt(decided)?, at))).collect();
        unsure.sort_by(|(a, _), (b, _)| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)));
        unsure.into_iter().map(|(_, at)| at).collect()
    }

    fn pass<E>(
        &mut self,
        all: &[usize],
        budget: Budget,
        tune: &mut dyn FnMut(&Point, Turn) -> Result<Outcome, E>,
        found: &mut dyn FnMut(&Decided) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut waiting: VecDeque<(usize, bool)> = all.iter().map(|at| (*at, false)).collect();
        while let Some((at, has_waited)) = waiting.pop_front() {
            let left = self.until.saturating_sub(self.clock.now());
            let share = left / (waiting.len() + 1) as u32;
            let point = &self.decided[at].point;
            let ready = self.readiness.expected(point);
            if ready > share * SHARES && !has_waited && !waiting.is_empty() {
                waiting.push_back((at, true));
                continue;
            }
            let enough = ready + self.usual() * if budget == Budget::Quick { 1 } else { LONGER };
            // Longer looks that would be cut short find nothing.
            let least = if budget == Budget::Quick { ready } else { enough };
            if left.is_zero() || left < least {
                continue;
            }
            let limit = share.max(enough).min(left);
            let outcome = tune(point, Turn { budget, limit })?;
            self.readiness.learn(point, outcome.ready);
            if budget == Budget::Quick && outcome.is_conclusive() {
                self.quick.push(outcome.wall.saturating_sub(outcome.ready));
            }
            let is_cancelled = outcome.verdict == Verdict::Inconclusive(WhyInconclusive::Cancelled);
            self.decided[at].outcomes.push(outcome);
            found(&self.decided[at])?;
            if is_cancelled {
                self.until = Duration::ZERO;
            }
        }
        Ok(())
    }

    /// What a quick tuning takes from its first kernel on.
    fn usual(&self) -> Duration {
        let sum: Duration = self.quick.iter().sum();
        if self.quick.is_empty() { FIRST } else { sum / self.quick.len() as u32 }
    }
}

/// What makes operands and a reference take long: the rows that are not like others of their group, and those of the second check.
fn work(point: &Point) -> f64 {
    let distinct = point.problem().groups().unwrap_or(1).saturating_mul(adversarial::PERIOD);
    point.problem().flop(u64::from(point.m().min(distinct)) + u64::from(point.m().min(AWKWARD_MAX)))
}

/// What it takes before any is known.
fn rated(work: f64) -> Duration {
    Duration::from_secs_f64(work / RATE)
}

/// How long it takes until the first kernel is checked: longer where weights are made, too, than where they are those of
/// the point before.
#[derive(Default)]
struct Readiness {
    made: Times,
    kept: Times,
    before: Option<Problem>,
}

impl Readiness {
    fn learn(&mut self, point: &Point, took: Duration) {
        let is_kept = self.is_kept(point);
        let times = if is_kept { &mut self.kept } else { &mut self.made };
        times.learn(work(point), took);
        self.before = Some(*point.problem());
    }

    fn expected(&self, point: &Point) -> Duration {
        let kept = self.is_kept(point).then(|| self.kept.expected(work(point))).flatten();
        kept.or_else(|| self.made.expected(work(point))).unwrap_or_else(|| rated(work(point)))
    }

    fn is_kept(&self, point: &Point) -> bool {
        self.before == Some(*point.problem())
    }
}

/// A time that any point takes, and one for its work.
#[derive(Default)]
struct Times {
    least: Option<Duration>,
    /// The most work so far, and how long that took.
    most: Option<(f64, Duration)>,
}

impl Times {
    fn learn(&mut self, work: f64, took: Duration) {
        self.least = Some(self.least.map_or(took, |least| least.min(took)));
        if self.most.is_none_or(|(most, _)| work >= most) {
            self.most = Some((work, took));
        }
    }

    /// Of more work than any so far, what is more as long as it takes before any is known.
    fn expected(&self, work: f64) -> Option<Duration> {
        let (least, (most, took)) = (self.least?, self.most?);
        let in_proportion = least + took.saturating_sub(least).mul_f64((work / most).max(0.0));
        Some(if work > most { in_proportion.max(took + rated(work - most)) } else { in_proportion })
    }
}
