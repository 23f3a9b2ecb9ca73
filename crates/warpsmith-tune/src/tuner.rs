//! Choosing a kernel for one problem and one M by measurement.
//!
//! ```text
//! incumbent ─┐
//! baseline  ─┼▶ build ▸ resource gate ▸ correctness gate ▸ screen ─▶ halving ─▶ duels ─▶ neighbours ─▶ confirmation
//! candidates ┘  (ahead, on all cores)                       each        the best   best so far   and again    incumbent
//! ```
//!
//! Screening is a short timing and only says what is worth a closer look. A duel is timed in turn with the best so far.
//! Neither changes a choice: that takes the confirmation, two more duels with the incumbent in both orders, each of
//! which has to be won by the margin, with certainty. So the many candidates of a search do not make a lucky one likely.
//! Before each of them the device rests ([`Rest`]), so that a hot one decides like a cool one.

use std::ops::ControlFlow;
use std::time::Duration;

use super::cores::cores;
use super::tuning::{Settings, Surroundings, Tuning};
use super::{Budget, Clock, Footprint, MARGIN, Measure, Outcome, Progress, Rest, SystemClock};
use warpsmith::Result;
use warpsmith::cache::KernelCache;
use warpsmith::spec::Spec;

/// Each thread that compiles takes a few hundred megabytes.
const THREADS_MAX: usize = 16;

type Build<'a> = Box<dyn Fn(&Spec) -> Result<Footprint> + Sync + 'a>;
type Watch<'a> = Box<dyn FnMut(&Progress<'_>) -> ControlFlow<()> + 'a>;

/// Chooses by measurement in a [`Measure`]. Knows no device and no compiler.
///
/// ```
/// use warpsmith::internal::spec::{baseline, space};
/// use warpsmith::spec::{Arch, Problem, Spec};
/// use warpsmith_tune::{Admission, Budget, Footprint, Measure, Tuner, Verdict};
///
/// /// Where everything is right, and takes longer the more stages it has.
/// struct Toy;
///
/// impl Measure for Toy {
///     fn admit(&mut self, _: &Spec) -> warpsmith::Result<Admission> {
///         Ok(Admission::Passed { worst: 0.0 })
///     }
///     fn screen(&mut self, spec: &Spec) -> warpsmith::Result<f64> {
///         Ok(10.0 + f64::from(spec.variant().stages))
///     }
///     fn duel(&mut self, one: &Spec, other: &Spec, pairs: usize) -> warpsmith::Result<Vec<(f64, f64)>> {
///         Ok(vec![(self.screen(one)?, self.screen(other)?); pairs])
///     }
/// }
///
/// let problem = Problem::gemm().n(4096).k(4096);
/// let candidates: Vec<Spec> = space(&problem, &Arch::H200).filter(|spec| spec.variant().stages > 1).collect();
/// let mut tuner = Tuner::new(Toy, |_| Ok(Footprint::default())).budget(Budget::Quick);
/// let outcome = tuner.tune(&candidates[3], 64, candidates.iter().copied())?;
/// assert_eq!((&outcome.verdict, outcome.choice), (&Verdict::Changed, baseline(&problem)));
/// println!("{outcome}");
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[must_use]
pub struct Tuner<'a, L> {
    measurer: L,
    build: Build<'a>,
    watch: Watch<'a>,
    clock: Box<dyn Clock + 'a>,
    settings: Settings,
}

impl<'a, L: Measure> Tuner<'a, L> {
    /// Measures in `measurer` what `build` has built. `build` is called from several threads; what it makes has to be
    /// where the measurer finds it (in a cache). It searches with [`Budget::Normal`] unless told otherwise.
    pub fn new(measurer: L, build: impl Fn(&Spec) -> Result<Footprint> + Sync + 'a) -> Self {
        let settings = Settings {
            budget: Budget::Normal,
            limit: None,
            margin: MARGIN,
            // One core is left to whoever launches.
            threads: (cores() - 1).clamp(1, THREADS_MAX),
            rest: Rest::NORMAL,
        };
        let watch = |_: &Progress<'_>| ControlFlow::Continue(());
        let clock = Box::new(SystemClock::new());
        Self { measurer, build: Box::new(build), watch: Box::new(watch), clock, settings }
    }

    /// Measures in `measurer` what `cache` makes.
    pub fn with_cache(measurer: L, cache: &'a KernelCache) -> Self {
        Self::new(measurer, |spec| Ok(Footprint::of(spec, cache.cubin(spec)?.cubin())))
    }

    /// How far to search.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.settings.budget = budget;
        self
    }

    /// How long to search (default: [`Budget::limit`]), rests and the confirmation included. Nothing is built, checked or
    /// timed any more that was not begun by then.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.settings.limit = Some(limit);
        self
    }

    /// By how much a challenger has to be faster, as a share (default: [`MARGIN`]).
    pub fn margin(mut self, margin: f64) -> Self {
        self.settings.margin = margin.max(0.0);
        self
    }

    /// How the device rests before two kernels are compared (default: [`Rest::NORMAL`]).
    pub fn rest(mut self, rest: Rest) -> Self {
        self.settings.rest = rest;
        self
    }

    /// Goes by this time instead of the system's.
    pub fn clock(mut self, clock: impl Clock + 'a) -> Self {
        self.clock = Box::new(clock);
        self
    }

    /// On how many threads to build (default: all cores but one, at most 16).
    pub fn threads(mut self, threads: usize) -> Self {
        self.settings.threads = threads.max(1);
        self
    }

    /// Tells `watch` after each candidate; it stops the search by breaking, which makes the outcome inconclusive.
    pub fn watch(mut self, watch: impl FnMut(&Progress<'_>) -> ControlFlow<()> + 'a) -> Self {
        self.watch = Box::new(watch);
        self
    }

    /// The measurer, when all is tuned.
    pub fn into_measurer(self) -> L {
        self.measurer
    }

    /// Chooses for the incumbent's problem and `m` rows (of all groups together), for which the measurer is made.
    /// `candidates` are given best first, as predicted; as many are tried as the budget has, and the incumbent and the
    /// baseline always. The same candidates and the same samples give the same choice.
    ///
    /// # Errors
    /// Unsupported, if a candidate is for another problem or architecture; missing library, if there is no compiler;
    /// driver, if the baseline crashes or hangs before any kernel has run; those of the measurer. A candidate that cannot
    /// be built, is wrong, hangs or crashes is none.
    pub fn tune(&mut self, incumbent: &Spec, m: u32, candidates: impl IntoIterator<Item = Spec>) -> Result<Outcome> {
        let around = Surroundings {
            measurer: &mut self.measurer,
            build: &*self.build,
            watch: &mut *self.watch,
            clock: &*self.clock,
            settings: self.settings,
        };
        Tuning::new(around, incumbent, m).run(candidates)
    }
}

impl<L: std::fmt::Debug> std::fmt::Debug for Tuner<'_, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tuner").field("measurer", &self.measurer).field("settings", &self.settings).finish()
    }
}
