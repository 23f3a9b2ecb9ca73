//! Everything that will be needed, made before it is.

mod budget;
mod report;
mod set;

use std::fmt;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

pub use report::{Failure, WarmUpReport, Warmed};
pub use set::KernelSet;

use self::report::ms;
use self::set::Needed;
use super::call::{Job, Made};
use super::loader::Loader;
use super::manifest::Manifest;
use super::residency::Residency;
use crate::cache::{KernelCache, Share, Tier};
use crate::crew;
use crate::error::{Error, Result};
use crate::pick::Picker;
use crate::run::LoadTime;
use crate::simt::Simt;
use crate::spec::Spec;

/// A step of a warm-up: a kernel that is there, or could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub struct Progress<'a> {
    /// Kernels that were tried so far, this one included.
    pub done: usize,
    /// All.
    pub total: usize,
    /// Its name.
    pub kernel: &'a str,
    /// Where its machine code came from, or what went wrong.
    pub outcome: std::result::Result<Tier, &'a Error>,
}

/// What is told of each step; it says whether to go on.
type Watch<'a> = dyn Fn(&Progress<'_>) -> ControlFlow<()> + Sync + 'a;

/// Settings of a warm-up: compiles what is missing, on several threads.
///
/// ```no_run
/// use std::ops::ControlFlow;
/// use warpsmith::cache::KernelCache;
/// use warpsmith::engine::{Manifest, WarmUp};
/// use warpsmith::pick::Picker;
/// use warpsmith::spec::Arch;
///
/// let show = |step: &warpsmith::engine::Progress<'_>| {
///     eprintln!("{} of {}: {}", step.done, step.total, step.kernel);
///     ControlFlow::Continue(())
/// };
/// let picker = Picker::new("NVIDIA H200", &Arch::H200);
/// let report = WarmUp::new().progress(&show).run(&KernelCache::new(), &picker, &Manifest::load("serving.toml")?);
/// println!("{report}");
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[derive(Clone, Copy)]
#[must_use]
pub struct WarmUp<'a> {
    threads: Option<NonZero<usize>>,
    memory: Option<u64>,
    share: Share,
    watch: Option<&'a Watch<'a>>,
}

impl fmt::Debug for WarmUp<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { threads, memory, share, watch: _ } = self;
        f.debug_struct("WarmUp").field("threads", threads).field("memory", memory).field("share", share).finish()
    }
}

impl Default for WarmUp<'_> {
    fn default() -> Self {
        Self::new()
    }
}

/// A kernel that was made, and what that took.
struct Step {
    tier: Tier,
    fetched: Duration,
    loaded: Option<LoadTime>,
}

impl<V> From<Made<V>> for Step {
    fn from(made: Made<V>) -> Self {
        Self { tier: made.tier, fetched: made.fetched, loaded: made.loaded }
    }
}

impl<'a> WarmUp<'a> {
    /// Bytes of memory that a compile is taken to need: see [`WarmUp::memory`].
    pub const COMPILE_BYTES: u64 = budget::COMPILE_BYTES;

    /// One thread a core, half of the memory that is available, nobody watching.
    pub fn new() -> Self {
        Self { threads: None, memory: None, share: Share::WHOLE, watch: None }
    }

    /// Threads at most.
    pub fn threads(mut self, threads: NonZero<usize>) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Bytes of memory that may be used: at most one thread for each [`WarmUp::COMPILE_BYTES`] of them, at least one. If
    /// nothing is said, half of what the system, or the control group of a container, still has.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// The part that this process begins with, where several share a disk and the work: each takes its own part, then what
    /// the others have stored meanwhile.
    pub fn share(mut self, share: Share) -> Self {
        self.share = share;
        self
    }

    /// Is told of every kernel when it has been tried, by the thread that did it. What it returns may end the warm-up:
    /// kernels that are being made are finished.
    pub fn progress(mut self, watch: &'a Watch<'a>) -> Self {
        self.watch = Some(watch);
        self
    }

    /// Sees to it that every kernel that `picker` can choose for `manifest` is in the caches of `cache`. Needs no GPU, and
    /// loads nothing. A kernel that fails is said in the report, and no reason not to make the others.
    pub fn run(&self, cache: &KernelCache, picker: &Picker, manifest: &Manifest) -> WarmUpReport {
        self.drive(picker, manifest, &|| {}, &|needed| {
            let step = |tier, fetched| Step { tier, fetched, loaded: None };
            Ok(match needed {
                Needed::Spec(spec) => cache.cubin(spec).map(|fetched| step(fetched.tier(), fetched.elapsed()))?,
                Needed::Simt(simt) => {
                    let fetched = cache.simt_cubin(*simt, picker.arch())?;
                    step(fetched.tier(), fetched.elapsed())
                }
            })
        })
    }

    /// As [`WarmUp::run`], and loads them, for good.
    pub(super) fn residency<L: Loader>(&self, residency: &Residency<L>, manifest: &Manifest) -> WarmUpReport {
        let pin = || {
            // Of problems that have no kernels the report says why.
            manifest
                .problems()
                .filter_map(|(problem, _)| residency.problem_kernels(problem).ok())
                .for_each(|problem_kernels| problem_kernels.pin());
        };
        self.drive(&residency.picker, manifest, &pin, &|needed| match needed {
            Needed::Spec(spec) => {
                let made = residency.kernel(spec);
                // Calls do not try again what has failed here, and try what works now.
                residency.queue.note(&Job::Kernel(*spec), made.as_ref().err().map(ToString::to_string));
                made.map(Step::from)
            }
            Needed::Simt(simt) => residency.simt(*simt).map(Step::from),
        })
    }

    fn drive(
        &self,
        picker: &Picker,
        manifest: &Manifest,
        begin: &dyn Fn(),
        make: &(dyn Fn(&Needed) -> Result<Step> + Sync),
    ) -> WarmUpReport {
        let start = Instant::now();
        let _warming = tracing::info_span!("warm_up").entered();
        let set = KernelSet::new(picker, manifest);
        let enumerate_ms = ms(start.elapsed());
        begin();
        let all = self.order(&set);
        let threads = budget::threads(self.threads, self.memory).min(all.len().max(1));
        let steps = self.steps(&all, threads, make);

        let mut report = WarmUpReport {
            kernels: set.len(),
            problems: set.problems().count(),
            enumerate_ms,
            elapsed_ms: 0.0,
            threads,
            left_out: all.len() - steps.len(),
            warm: Vec::new(),
            failures: set.refused().iter().map(|(problem, error)| refused(manifest, problem, error)).collect(),
        };
        let is_there = |spec: &Spec| steps.iter().any(|(needed, step)| *needed == Needed::Spec(*spec) && step.is_ok());
        for (needed, step) in &steps {
            match step {
                Ok(Step { tier, fetched, loaded }) => report.warm.push(Warmed {
                    kernel: needed.name(),
                    tier: *tier,
                    fetch_ms: ms(*fetched),
                    load_ms: loaded.map(|time| ms(time.driver)),
                    load_wait_ms: loaded.map(|time| ms(time.waited)),
                }),
                Err(error) => report.failures.push(failure(&set, needed, error, &is_there)),
            }
        }
        report.warm.sort_by(|a, b| a.kernel.cmp(&b.kernel));
        report.failures.sort_by(|a, b| a.kernel.cmp(&b.kernel));
        report.elapsed_ms = ms(start.elapsed());
        report
    }

    /// What is made, in this process's order.
    fn order(&self, set: &KernelSet) -> Vec<Needed> {
        let specs: Vec<Spec> = set.specs().copied().collect();
        let specs = self.share.order(&specs).into_iter().map(Needed::Spec);
        set.simts().map(Needed::Simt).chain(specs).collect()
    }

    fn steps(
        &self,
        all: &[Needed],
        threads: usize,
        make: &(dyn Fn(&Needed) -> Result<Step> + Sync),
    ) -> Vec<(Needed, Result<Step>)> {
        let done = AtomicUsize::new(0);
        let steps = crew::each(all, threads, |needed| {
            let step = make(needed);
            let Some(watch) = self.watch else { return ControlFlow::Continue(step) };
            let outcome = step.as_ref().map(|step| step.tier);
            let done = done.fetch_add(1, Relaxed) + 1;
            match watch(&Progress { done, total: all.len(), kernel: &needed.name(), outcome }) {
                ControlFlow::Continue(()) => ControlFlow::Continue(step),
                ControlFlow::Break(()) => ControlFlow::Break(step),
            }
        });
        steps.into_iter().map(|(index, step)| (all[index], step)).collect()
    }
}

/// [`WarmUp::run`] with the usual settings.
pub fn warm_up(cache: &KernelCache, picker: &Picker, manifest: &Manifest) -> WarmUpReport {
    WarmUp::new().run(cache, picker, manifest)
}

fn refused(manifest: &Manifest, problem: &crate::spec::Problem, error: &Error) -> Failure {
    let rows = manifest.rows(problem).map(ToString::to_string).unwrap_or_default();
    let serves = vec![format!("{problem} at {rows}")];
    Failure { kernel: problem.to_string(), serves, why: error.to_string(), instead: None }
}

fn failure(set: &KernelSet, needed: &Needed, error: &Error, is_there: &dyn Fn(&Spec) -> bool) -> Failure {
    let rows = |ranges: Vec<std::ops::RangeInclusive<u32>>| {
        let ranges: Vec<_> = ranges.iter().map(|range| format!("{}..={}", range.start(), range.end())).collect();
        ranges.join(", ")
    };
    let serves = set.serves(needed).into_iter().map(|(problem, ranges)| format!("{problem} at {}", rows(ranges)));
    let beside = match needed {
        Needed::Simt(Simt::Route(route)) => Some(format!("{route} at any number of tokens")),
        Needed::Simt(Simt::Combine(combine)) => Some(format!("{combine} at any number of tokens")),
        Needed::Simt(Simt::Experts(experts)) => Some(format!("{experts} at few tokens")),
        Needed::Simt(Simt::Quantise(quantise)) => Some(format!("{quantise} at any number of rows")),
        _ => None,
    };
    let instead = match needed {
        Needed::Spec(spec) => set.instead(spec, is_there).map(|spec| spec.variant().to_string()),
        Needed::Simt(_) => None,
    };
    Failure { kernel: needed.name(), serves: serves.chain(beside).collect(), why: error.to_string(), instead }
}
