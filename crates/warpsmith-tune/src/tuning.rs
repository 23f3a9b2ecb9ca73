//! One tuning under way: who is in it, and how they stand.

mod duels;
mod judgement;
mod resting;
mod screening;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::Duration;

use super::statistics::median;
use super::{
    Budget, Clock, Disturbance, Footprint, Measure, Outcome, Progress, Rejection, Rest, Stage, Standing, Tried,
};
use warpsmith::Result;
use warpsmith::spec::Spec;

/// Of the limit, the share after which no more rivals are compared, so that there is time to confirm who has won.
const SEARCH_SHARE: f64 = 0.85;

/// How a tuner searches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) budget: Budget,
    pub(super) limit: Option<Duration>,
    pub(super) margin: f64,
    pub(super) threads: usize,
    pub(super) rest: Rest,
}

impl Settings {
    fn limit(&self) -> Duration {
        self.limit.unwrap_or(self.budget.limit())
    }
}

/// What a tuning needs of its surroundings.
pub(super) struct Surroundings<'a> {
    pub(super) measurer: &'a mut dyn Measure,
    pub(super) build: &'a (dyn Fn(&Spec) -> Result<Footprint> + Sync),
    pub(super) watch: &'a mut dyn FnMut(&Progress<'_>) -> ControlFlow<()>,
    pub(super) clock: &'a dyn Clock,
    pub(super) settings: Settings,
}

/// One tuning under way.
pub(super) struct Tuning<'a> {
    around: Surroundings<'a>,
    incumbent: Spec,
    /// The first of the candidates.
    first: Option<Spec>,
    m: u32,
    begun: Duration,
    /// When the first kernel was checked and timed.
    ready: Option<Duration>,
    /// How long the device was timed since it rested last, if it has, and how long it has rested in all.
    busy: Option<Duration>,
    rested: Duration,
    entries: Vec<Candidate>,
    places: HashMap<Spec, usize>,
    reference: Option<ScreenReference>,
    /// The shortest short timing so far.
    best_us: Option<f64>,
    /// What left a duel undecided.
    disturbed: Option<Disturbance>,
    /// The time was up before a comparison that might have changed the choice.
    unsettled: bool,
    cancelled: bool,
    out_of_time: bool,
}

/// Someone in the tuning.
struct Candidate {
    spec: Spec,
    tried: Tried,
    spills: bool,
    /// Short timings in microseconds, and as shares of the reference's at about the same time.
    screened: Vec<f64>,
    shares: Vec<f64>,
    /// The shortest of them, on a device that was cool.
    coolest: f64,
}

/// The entry that short timings are compared with, its own, and how often it has been used.
#[derive(Clone, Copy)]
struct ScreenReference {
    place: usize,
    us: f64,
    uses: usize,
}

impl<'a> Tuning<'a> {
    pub(super) fn new(around: Surroundings<'a>, incumbent: &Spec, m: u32) -> Self {
        let begun = around.clock.now();
        Self {
            around,
            incumbent: *incumbent,
            first: None,
            m,
            begun,
            ready: None,
            busy: None,
            rested: Duration::ZERO,
            entries: Vec::new(),
            places: HashMap::new(),
            reference: None,
            best_us: None,
            disturbed: None,
            unsettled: false,
            cancelled: false,
            out_of_time: false,
        }
    }

    pub(super) fn run(mut self, candidates: impl IntoIterator<Item = Spec>) -> Result<Outcome> {
        self.screen_candidates(candidates)?;
        let mut best = self.best_before();
        if let Some(best) = &mut best {
            let rivals = self.finalists(0, *best, self.around.settings.budget.finalists())?;
            *best = self.duels(*best, &rivals)?;
            if self.around.settings.budget.climbs() {
                *best = self.climb(*best)?;
            }
        }
        self.judge(best)
    }

    /// Whether nothing more is to be begun: the caller has stopped it, or this share of the limit is over.
    fn is_over(&mut self, share: f64) -> bool {
        let over = self.elapsed() >= self.around.settings.limit().mul_f64(share);
        self.out_of_time |= over;
        over || self.cancelled
    }

    fn elapsed(&self) -> Duration {
        self.around.clock.now().saturating_sub(self.begun)
    }

    /// Until the limit.
    fn left(&self) -> Duration {
        self.around.settings.limit().saturating_sub(self.elapsed())
    }

    fn tell(&mut self, stage: Stage, place: usize, done: usize, of: Option<usize>) {
        let progress = Progress {
            stage,
            spec: &self.entries[place].spec,
            done,
            of,
            best_us: self.best_us,
            elapsed: self.elapsed(),
        };
        self.cancelled |= (self.around.watch)(&progress).is_break();
    }
}

impl Candidate {
    /// It has passed the gates, and was timed.
    fn is_right(&self) -> bool {
        self.tried.worst.is_some() && !self.shares.is_empty()
    }

    /// How it was screened, as a share of the reference.
    fn share(&self) -> f64 {
        median(&self.shares)
    }

    fn refuse(&mut self, rejection: Rejection) {
        self.tried.standing = Standing::Refused(rejection);
        self.tried.worst = None;
    }
}
