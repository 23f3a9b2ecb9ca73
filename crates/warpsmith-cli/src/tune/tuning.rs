//! One tuning: candidates by prediction, in a worker process, watched by a progress bar.

use std::ops::ControlFlow;
use std::time::Duration;

use indicatif::ProgressBar;
use warpsmith::cache::KernelCache;
use warpsmith::internal::pick::heuristic;
use warpsmith::pick::Picker;
use warpsmith::spec::{Activation, Problem, Spec};
use warpsmith_tune::{Budget, Launching, Outcome, Progress, Rest, Setup, Stage, Tuner, WorkerCommand, WorkerMeasurer};

use super::record::Means;
use crate::shared::list::Item;
use crate::shared::{Result, bar, further_rows};

/// Kernels of other rows that are tried at most.
const KIN: usize = 4;

/// Tunes one problem after the other, in one worker as long as it lives.
pub struct Tuning<'a> {
    cache: &'a KernelCache,
    measurer: WorkerMeasurer<'a>,
    device: usize,
    launching: Launching,
    rest: Rest,
}

impl<'a> Tuning<'a> {
    /// On a device, which is timed in at most a share of the time between comparisons.
    pub fn new(cache: &'a KernelCache, device: usize, dependent: bool, duty: f64) -> Result<Self> {
        let anything = Problem::dual_gemm(Activation::Silu).n(64).k(64);
        let setup = Setup::new(&anything, 1).device(device);
        let measurer = WorkerMeasurer::new(WorkerCommand::this_binary()?, cache, setup);
        Ok(Self { cache, measurer, device, launching: Launching::of(dependent), rest: Rest::duty(duty) })
    }

    /// What there is to tune with. The device is as a worker has found it: this process never opens it.
    pub fn means(&mut self) -> Result<Means> {
        let device = self.measurer.device()?;
        let nvrtc = self.cache.toolchain()?.version();
        Ok(Means {
            device: device.name().to_owned(),
            arch: *device.arch(),
            driver: device.driver_version().to_string(),
            nvrtc: nvrtc.map_or_else(|| "unknown".to_owned(), |version| version.to_string()),
        })
    }

    /// How calls follow each other.
    pub fn launching(&self) -> Launching {
        self.launching
    }

    /// Looks for a faster kernel than the incumbent, for as long as a limit or the budget's own says; of what is predicted
    /// to be fast, the first and then `kin` come before the others.
    pub fn tune(
        &mut self,
        item: &Item,
        incumbent: &Spec,
        kin: &[Spec],
        budget: Budget,
        limit: Option<Duration>,
    ) -> Result<Outcome> {
        let (problem, m) = (&item.problem, item.m());
        let further = further_rows(problem, &item.rows)?;
        let load =
            if further.is_empty() { heuristic::load_of(problem, &item.rows) } else { heuristic::load(problem, m) };
        let candidates = heuristic::rank_for(problem, &load, incumbent.arch(), budget.candidates(), &|_| true);
        let setup = Setup::new(problem, m).rows(item.rows.clone()).further_rows(further);
        let setup = setup.device(self.device).launching(self.launching);
        self.measurer.turn_to(setup);
        let progress = bar(0, "");
        let watch = |at: &Progress<'_>| {
            show(&progress, item, at);
            ControlFlow::Continue(())
        };
        let tuner = Tuner::with_cache(&mut self.measurer, self.cache).budget(budget).rest(self.rest).watch(watch);
        let mut tuner = tuner.limit(limit.unwrap_or(budget.limit()));
        let outcome = tuner.tune(incumbent, m, ordered(candidates, kin));
        drop(tuner);
        progress.finish_and_clear();
        Ok(outcome?)
    }
}

/// The best as predicted, then these, then the others; each once.
pub fn ordered(ranked: Vec<heuristic::Ranked>, kin: &[Spec]) -> Vec<Spec> {
    let mut all: Vec<Spec> = ranked.into_iter().map(|ranked| ranked.spec).collect();
    let others = all.split_off(all.len().min(1));
    for spec in kin.iter().copied().chain(others) {
        if !all.contains(&spec) {
            all.push(spec);
        }
    }
    all
}

/// The kernels that serve a problem at the nearest other rows: one that is good there, too, spares another.
pub fn kin(picker: &Picker, problem: &Problem, m: u32) -> Result<Vec<Spec>> {
    let schedule = picker.schedule(problem)?;
    let own = schedule.at(m).spec();
    let octaves = |last: u32| (f64::from(last) / f64::from(m)).log2().abs();
    let mut others: Vec<_> = schedule.intervals().iter().filter(|other| other.choice.spec() != own).collect();
    others.sort_by(|a, b| octaves(a.last).total_cmp(&octaves(b.last)));
    let mut kin: Vec<Spec> = Vec::new();
    for other in others {
        let spec = *other.choice.spec();
        if kin.len() < KIN && spec.fits_grid(m) && !kin.contains(&spec) {
            kin.push(spec);
        }
    }
    Ok(kin)
}

fn show(progress: &ProgressBar, item: &Item, at: &Progress<'_>) {
    let stage = match at.stage {
        Stage::Screening => "screened",
        Stage::Halving => "screened again",
        Stage::Duels => "timed in turn with the best",
        Stage::Climbing(_) => "neighbours screened",
        Stage::Confirming => "confirmed",
    };
    let best = at.best_us.map_or(String::new(), |us| format!(", best {us:.2} µs"));
    progress.set_length(at.of.unwrap_or(at.done) as u64);
    progress.set_position(at.done as u64);
    progress.set_message(format!("{} M={}: {stage}{best}", item.problem, item.m()));
}
