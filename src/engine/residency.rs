//! The kernels of a device: those that are loaded, and how the others get there.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::background::{Asked, Queue};
use super::call::{Call, Job, Made, OnMiss, Served};
use super::loader::Loader;
use super::problem_index::ProblemIndex;
use super::problem_kernels::ProblemKernels;
use super::recorder::Recorder;
use super::stats::{BackgroundStats, Counters, EngineStats};
use crate::cache::{KernelCache, Memory, Tier};
use crate::error::{Error, Result};
use crate::pick::Picker;
use crate::simt::Simt;
use crate::spec::{Problem, Spec};

/// Kernels kept loaded at most, beside those of a warm-up. A module of one kernel takes some hundred KiB of device memory.
pub(super) const LOADED_MAX: usize = 256;
/// Bytes of machine code kept loaded at most, beside those that a problem's calls go to.
const LOADED_BYTES_MAX: usize = 256 << 20;
/// Problems at most that are remembered although no kernel of them is loaded: as many as a picker has schedules of.
const EMPTY_MAX: usize = 1024;
/// Kernels that wait for the background thread at most, and that are known to have failed.
const WAITING_MAX: usize = 1024;
/// Modules of dropped kernels from which on they are unloaded, where that may be done; seldom, since each time is a mark
/// that a capture which nobody knows of would not survive.
pub(super) const RECLAIM_AT: usize = LOADED_MAX;
/// Modules of dropped kernels at most, beyond which nothing is loaded.
pub(super) const RETIRED_MAX: usize = 4 * LOADED_MAX;

/// Everything of an engine that does not depend on a device, and a loader that does. Shared by the engine and its
/// background thread.
pub(super) struct Residency<L: Loader> {
    pub loader: L,
    pub cache: Arc<KernelCache>,
    pub picker: Picker,
    pub recorder: Recorder,
    pub counters: Counters,
    pub problem_index: ProblemIndex<L::Kernel>,
    pub queue: Queue<Job>,
    /// What was loaded last, however it was asked for; loads of one kernel are one load.
    pub loaded: Memory<Spec, L::Kernel>,
    /// The same, of kernels without matrix instructions.
    pub simt: Memory<Simt, L::Simt>,
    /// What was said of unloading.
    reclaims: Mutex<Option<bool>>,
}

impl<L: Loader> Residency<L> {
    pub fn new(loader: L, cache: Arc<KernelCache>, picker: Picker) -> Self {
        Self {
            loader,
            cache,
            picker,
            recorder: Recorder::new(),
            counters: Counters::default(),
            problem_index: ProblemIndex::new(LOADED_MAX, EMPTY_MAX),
            queue: Queue::new(WAITING_MAX),
            loaded: Memory::new(LOADED_MAX, LOADED_BYTES_MAX, L::bytes),
            simt: Memory::new(LOADED_MAX, LOADED_BYTES_MAX, L::simt_bytes),
            reclaims: Mutex::default(),
        }
    }

    /// Says whether modules of dropped kernels may be unloaded at any time.
    pub fn set_reclaims(&self, reclaims: bool) {
        *self.reclaims.lock().unwrap_or_else(PoisonError::into_inner) = Some(reclaims);
    }

    /// The kernel for a call, or one that stands in for it.
    pub fn serve(&self, call: &Call<'_>) -> Result<Served<L::Kernel>> {
        let table = self.problem_index.read();
        let Some(problem_kernels) = table.get(&call.problem) else {
            drop(table);
            // Before anything is noted, counted or asked for.
            call.problem.check_for(call.m)?;
            return self.serve_first(call).map_err(|error| call.context(error));
        };
        let Some(index) = problem_kernels.index(call.m) else { return Err(self.no_choice(call)) };
        problem_kernels.seen().note(call.m);
        if let Some(served) = problem_kernels.get(index, self.problem_index.now()) {
            self.counters.resident.add();
            return Ok(served);
        }
        self.miss(problem_kernels, index, call).map_err(|error| call.context(error))
    }

    /// A problem that was never asked for before: choosing for it takes milliseconds, which only `OnMiss::Block` waits for.
    fn serve_first(&self, call: &Call<'_>) -> Result<Served<L::Kernel>> {
        const NOTHING: &str = "no kernel of this problem is loaded";
        self.recorder.note(&call.problem, call.m);
        match call.on_miss {
            OnMiss::Block => {
                let problem_kernels = self.problem_kernels(&call.problem)?;
                let Some(index) = problem_kernels.index(call.m) else { return Err(self.no_choice(call)) };
                self.miss(&problem_kernels, index, call)
            }
            OnMiss::Fallback => {
                let is_there = || self.problem_index.read().contains_key(&call.problem);
                Err(self.unserved(&self.ask(&Job::First(call.problem), is_there, call), NOTHING))
            }
            OnMiss::Error => Err(self.refused(NOTHING)),
        }
    }

    /// A call whose kernel is in no slot.
    fn miss(
        &self,
        problem_kernels: &ProblemKernels<L::Kernel>,
        index: usize,
        call: &Call<'_>,
    ) -> Result<Served<L::Kernel>> {
        let choice = problem_kernels.choice(index);
        // Loaded for somebody else, by a pinned choice, say.
        if let Some(kernel) = self.loaded.get(choice.spec()) {
            self.publish(choice.spec(), &kernel);
            self.counters.resident.add();
            return Ok(Served::resident(choice, &kernel));
        }
        let job = Job::Kernel(*choice.spec());
        match call.on_miss {
            OnMiss::Block => {
                if let Some(why) = self.queue.failure(&job) {
                    return self.fallback(problem_kernels, index, call.m).ok_or_else(|| failed(&why));
                }
                (call.may_load)()?;
                let start = Instant::now();
                let made = self.kernel(choice.spec())?;
                let (kernel, tier) = (made.value, made.tier);
                Ok(Served { choice: *choice, wanted: None, kernel, tier, elapsed: start.elapsed() })
            }
            OnMiss::Fallback => {
                let asked = self.ask(&job, || problem_kernels.has(index), call);
                // Published since it was looked for.
                if let Some(served) = problem_kernels.get(index, self.problem_index.now()) {
                    return Ok(served);
                }
                let nothing = "no loaded kernel of this problem can stand in";
                self.fallback(problem_kernels, index, call.m).ok_or_else(|| self.unserved(&asked, nothing))
            }
            OnMiss::Error => Err(self.refused(&format!("{} is not loaded", choice.spec().variant()))),
        }
    }

    fn fallback(&self, problem_kernels: &ProblemKernels<L::Kernel>, index: usize, m: u32) -> Option<Served<L::Kernel>> {
        let served = problem_kernels.fallback(index, m)?;
        self.counters.fallbacks.add();
        Some(served)
    }

    fn ask(&self, job: &Job, is_there: impl FnOnce() -> bool, call: &Call<'_>) -> Asked {
        let asked = self.queue.ask(job, is_there);
        if asked == (Asked::OnItsWay { first: true }) {
            self.counters.background_asked.add();
            (call.wake)();
        }
        asked
    }

    /// Why a call that does not wait gets nothing.
    fn unserved(&self, asked: &Asked, nothing: &str) -> Error {
        self.counters.unserved.add();
        match asked {
            Asked::Failed(why) => failed(why),
            Asked::There | Asked::OnItsWay { .. } => {
                Error::not_loaded(format!("{nothing}; the right one is being made, a later call finds it"))
            }
            Asked::Full => Error::not_loaded(format!("{nothing}, and {WAITING_MAX} kernels are waiting to be made")),
            Asked::Closed => Error::not_loaded(format!("{nothing}, and the engine is about to be dropped")),
        }
    }

    fn refused(&self, nothing: &str) -> Error {
        self.counters.unserved.add();
        Error::not_loaded(format!("{nothing}; remedy: warm up with a manifest that covers it"))
    }

    /// A number of rows that there is no choice for.
    fn no_choice(&self, call: &Call<'_>) -> Error {
        let refusal = self.picker.choose(&call.problem, call.m).err();
        let most = Problem::M_MAX;
        refusal.unwrap_or_else(|| {
            Error::unsupported(format!("{} for {} rows: must be at most {most}", call.problem, call.m))
        })
    }

    /// The kernels of a problem, without its stated range of M.
    pub fn problem_kernels(&self, problem: &Problem) -> Result<Arc<ProblemKernels<L::Kernel>>> {
        if let Some(problem_kernels) = self.problem_index.read().get(problem) {
            return Ok(Arc::clone(problem_kernels));
        }
        let schedule = {
            let _picking = tracing::info_span!("pick", %problem).entered();
            self.picker.schedule(problem)?
        };
        let problem_kernels = ProblemKernels::new(schedule, self.recorder.seen(problem));
        for interval in problem_kernels.intervals() {
            if let Some(kernel) = self.loaded.get(interval.choice.spec()) {
                problem_kernels.publish(interval.choice.spec(), &kernel);
            }
        }
        let (problem_kernels, gone) = self.problem_index.add(*problem, problem_kernels);
        self.gone(&gone);
        Ok(problem_kernels)
    }

    /// Problems that have lost their kernels, with which their rows were noted, are no longer in use.
    fn gone(&self, problems: &[Problem]) {
        // The latest first, so that they are forgotten in the order in which they were asked for.
        problems.iter().rev().for_each(|problem| self.recorder.asked_until_now(problem));
    }

    /// A loaded kernel, made if need be. Threads that ask for the same one wait for one compile and one load.
    pub fn kernel(&self, spec: &Spec) -> Result<Made<L::Kernel>> {
        let (mut tier, mut fetching, mut loading) = (Tier::Memory, Duration::ZERO, None);
        let (value, _) = self.loaded.get_or_try_compute(spec, || {
            self.make_room()?;
            let fetched = self.cache.cubin(spec)?;
            (tier, fetching) = (fetched.tier(), fetched.elapsed());
            if let Some(kernel) = fetched.built().cubin().resources().iter().find(|kernel| kernel.has_spills()) {
                tracing::warn!(%kernel, "registers are spilled: right, but another variant may be faster");
            }
            let kernel = self.load(&spec.name(), || self.loader.load(fetched.built()))?;
            loading = Some(self.counters.loaded(L::load_time(&kernel)));
            Ok::<_, Error>(kernel)
        })?;
        if loading.is_some() {
            self.publish(spec, &value);
        }
        Ok(Made { value, tier, fetched: fetching, loaded: loading })
    }

    /// A loaded kernel without matrix instructions, made if need be.
    pub fn simt(&self, simt: Simt) -> Result<Made<L::Simt>> {
        let (mut tier, mut fetching, mut loading) = (Tier::Memory, Duration::ZERO, None);
        let (value, _) = self.simt.get_or_try_compute(&simt, || {
            self.make_room()?;
            let fetched = self.cache.simt_cubin(simt, self.picker.arch())?;
            (tier, fetching) = (fetched.tier(), fetched.elapsed());
            let kernel = self.load(&simt.symbol(), || self.loader.load_simt(fetched.built()))?;
            loading = Some(self.counters.loaded(L::simt_load_time(&kernel)));
            Ok::<_, Error>(kernel)
        })?;
        Ok(Made { value, tier, fetched: fetching, loaded: loading })
    }

    /// Sees to it that kernels which were dropped do not stay loaded without end.
    ///
    /// # Errors
    /// Not loaded, if too many do.
    fn make_room(&self) -> Result<()> {
        if self.loader.retired() < RECLAIM_AT {
            return Ok(());
        }
        let said = *self.reclaims.lock().unwrap_or_else(PoisonError::into_inner);
        if said.unwrap_or_else(|| self.loader.may_reclaim()) {
            match self.loader.reclaim() {
                Ok(count) => self.counters.reclaimed.add_many(count as u64),
                // A capture is known. A later load tries again.
                Err(error) => tracing::debug!(%error, "kernels that were dropped stay loaded"),
            }
        }
        let retired = self.loader.retired();
        if retired < RETIRED_MAX {
            return Ok(());
        }
        Err(Error::not_loaded(format!(
            "{retired} kernels that were dropped are still loaded on the device, {RETIRED_MAX} may be; remedy: \
             `Device::reclaim` while nothing is captured, or `Engine::reclaims(true)`"
        )))
    }

    fn load<V>(&self, kernel: &str, load: impl FnOnce() -> Result<V>) -> Result<Arc<V>> {
        let _loading = tracing::info_span!("load", kernel).entered();
        load().map(Arc::new)
    }

    /// Makes a loaded kernel visible to the calls of its problem.
    fn publish(&self, spec: &Spec, kernel: &Arc<L::Kernel>) {
        if let Some(problem_kernels) = self.problem_index.read().get(spec.problem())
            && problem_kernels.publish(spec, kernel)
        {
            self.gone(&self.problem_index.published());
        }
    }

    /// The counters.
    pub fn stats(&self) -> EngineStats {
        let Counters { resident, fallbacks, unserved, background_asked, background_made, .. } = &self.counters;
        let table = self.problem_index.read();
        let found = || table.values().flat_map(|problem_kernels| problem_kernels.kernels());
        let failed = self.queue.failures().into_iter().map(|(job, why)| (job.name(), why.to_string()));
        EngineStats {
            resident: resident.get(),
            fallbacks: fallbacks.get(),
            unserved: unserved.get(),
            loads: self.counters.loads(),
            load_ms: self.counters.load_ms(),
            load_wait_ms: self.counters.load_wait_ms(),
            problems: table.values().filter(|problem_kernels| problem_kernels.kernels().next().is_some()).count(),
            kernels: found().count(),
            kernel_bytes: found().map(|kernel| L::bytes(kernel)).sum(),
            evictions: self.problem_index.evictions(),
            retired: self.loader.retired(),
            reclaimed: self.counters.reclaimed.get(),
            forgotten: self.recorder.forgotten(),
            background: BackgroundStats {
                asked: background_asked.get(),
                made: background_made.get(),
                on_its_way: self.queue.on_its_way(),
                failures: failed.collect(),
                forgotten: self.queue.forgotten(),
            },
            cache: self.cache.stats(),
        }
    }

    /// What the background thread does with a job.
    pub fn make(&self, job: &Job) -> Result<(), String> {
        let spec = match job {
            Job::Kernel(spec) => *spec,
            Job::First(problem) => {
                let problem_kernels = self.problem_kernels(problem).map_err(|error| error.to_string())?;
                let Some(index) = problem_kernels.seen().most().and_then(|m| problem_kernels.index(m)) else {
                    return Ok(());
                };
                *problem_kernels.choice(index).spec()
            }
        };
        let made = self.kernel(&spec);
        if let Err(error) = &made
            && error.is_not_loaded()
        {
            // There was no room, which says nothing of the kernel: it is tried again when it is asked for again.
            tracing::warn!(kernel = spec.name(), %error, "a kernel could not be loaded in the background");
            return Ok(());
        }
        let failure = made.err().map(|error| error.to_string());
        match &failure {
            None => self.counters.background_made.add(),
            Some(why) => tracing::warn!(kernel = spec.name(), why, "a kernel could not be made in the background"),
        }
        match (job, failure) {
            // What was asked for were the choices; the kernel that failed is remembered for itself.
            (Job::First(_), failure) => self.queue.note(&Job::Kernel(spec), failure),
            (Job::Kernel(_), Some(why)) => return Err(why),
            (Job::Kernel(_), None) => {}
        }
        Ok(())
    }
}

fn failed(why: &str) -> Error {
    Error::not_loaded(format!(
        "it was tried before, and nothing else is loaded for it: {why}; remedy: another warm-up tries again"
    ))
}
