//! The composition root on a device: what was only described becomes a loaded kernel.
//!
//! [`Engine`] holds a [`Device`], a [`KernelCache`], a [`Picker`] and the kernels that are loaded. There is no
//! global state: two engines on two devices, or on one, do not know of each other.

mod background;
mod bound;
mod call;
pub(crate) mod doctor;
mod interval_index;
mod loader;
mod manifest;
mod plan;
mod problem_index;
mod problem_kernels;
mod recorder;
mod residency;
mod rows;
pub(crate) mod stats;
mod sync;
#[cfg(test)]
mod tests;
pub(crate) mod warm_up;
mod weights;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::CudaStream;

pub use bound::BoundPlan;
pub use call::OnMiss;
pub use manifest::Manifest;
pub use plan::Plan;
pub use recorder::Recorder;
pub use rows::Rows;
pub use stats::EngineStats;
pub use warm_up::{Progress, WarmUp, WarmUpReport};

use crate::cache::{KernelCache, Seal, Tier};
use crate::error::Result;
use crate::pick::{Choice, Explanation, Picker};
use crate::run::experts::ExpertsKernel;
use crate::run::places::Places;
use crate::run::{Combiner, Device, Kernel, Quantiser, Router};
use crate::simt::Experts;
use crate::spec::{Combine, Problem, Quantise, Route};

use self::call::{Call, Served};
use self::residency::Residency;
use self::worker::Worker;

/// Picks, builds and loads kernels on one device. Shared between threads by reference.
///
/// ```no_run
/// use warpsmith::engine::Engine;
/// use warpsmith::run::Device;
/// use warpsmith::spec::{Activation, Problem};
///
/// let engine = Engine::new(&Device::open(0)?);
/// let problem = Problem::dual_gemm(Activation::Silu).n(4096).k(7168).m_up_to(512);
/// let selected = engine.kernel(&problem, 256)?;
/// println!("{} because {}", selected.kernel().spec().variant(), selected.choice().reason());
/// # Ok::<(), warpsmith::Error>(())
/// ```
///
/// # Serving
/// A server warms up before it takes requests, ends compiling, and says what a call gets whose kernel is not there:
///
/// ```no_run
/// use warpsmith::cache::Seal;
/// use warpsmith::engine::{Engine, Manifest, OnMiss};
/// use warpsmith::run::Device;
///
/// let engine = Engine::new(&Device::open(0)?).on_miss(OnMiss::Fallback);
/// let report = engine.warm_up(&Manifest::load("serving.toml")?);
/// println!("{report}");
/// engine.seal(Seal::Warn);
/// // ... serve; then what was asked for makes the next manifest:
/// engine.record().manifest().save("serving.toml")?;
/// println!("{}", engine.stats());
/// # Ok::<(), warpsmith::Error>(())
/// ```
///
/// Kernels of a warm-up stay loaded as long as the engine. When too many others are loaded, the problem that was asked for
/// least recently gives its own back; whoever holds one keeps it. Dropping the engine waits for the compile that is under way
/// in the background, if there is one.
pub struct Engine {
    residency: Arc<Residency<Device>>,
    worker: Worker<Device>,
    on_miss: OnMiss,
}

/// A kernel ready to launch, why it was chosen, and what it took to get it.
#[derive(Clone, Debug)]
#[must_use]
pub struct Selected(Served<Kernel>);

impl Selected {
    /// The variant, with where it came from and why.
    pub fn choice(&self) -> &Choice {
        &self.0.choice
    }

    /// What is chosen, if the kernel only stands in for it.
    #[must_use]
    pub fn stands_in_for(&self) -> Option<&Choice> {
        self.0.wanted.as_deref()
    }

    /// The kernel. Holding it keeps it loaded.
    pub fn kernel(&self) -> &Arc<Kernel> {
        &self.0.kernel
    }

    /// Where its machine code came from; memory, if the kernel was loaded already.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.0.tier
    }

    /// How long it took to get, loading included; nothing, if it was loaded already.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed
    }
}

impl Engine {
    /// An engine with a cache of default settings: it finds NVRTC, and never installs it.
    #[must_use]
    pub fn new(device: &Device) -> Self {
        Self::with_cache(device, KernelCache::builder().build())
    }

    /// An engine with a cache of its own, or one that it shares with engines on other devices (`Arc<KernelCache>`), so that a
    /// kernel is compiled once for all of them; and a picker of default settings: it knows the built-in tuning table.
    #[must_use]
    pub fn with_cache(device: &Device, cache: impl Into<Arc<KernelCache>>) -> Self {
        Self::with_cache_and_picker(device, cache, Picker::new(device.name(), device.arch()))
    }

    /// The same with its own picker, from [`Picker::builder`] with the device's name and architecture.
    #[must_use]
    pub fn with_cache_and_picker(device: &Device, cache: impl Into<Arc<KernelCache>>, picker: Picker) -> Self {
        let residency = Arc::new(Residency::new(device.clone(), cache.into(), picker));
        let worker = Worker::new(Arc::clone(&residency));
        Self { residency, worker, on_miss: OnMiss::default() }
    }

    /// What becomes of a call of [`Engine::kernel`] whose kernel is not loaded, from now on (until something is said:
    /// [`OnMiss::Block`]).
    #[must_use]
    pub fn on_miss(mut self, on_miss: OnMiss) -> Self {
        self.on_miss = on_miss;
        self
    }

    /// Whether the engine unloads kernels that it has evicted by itself, with [`Device::reclaim`], when some hundred are still
    /// loaded; that would lose a capture of another stream of the context, if the driver does not tell of it. Until something
    /// is said: where cudarc tracks events in the device's context, since no kernel is captured there. Where it may not, whoever
    /// captures calls [`Device::reclaim`] when nothing is captured; nothing more is loaded when a thousand wait for it.
    #[must_use]
    pub fn reclaims(self, reclaims: bool) -> Self {
        self.residency.set_reclaims(reclaims);
        self
    }

    /// The kernel for `m` rows (of all groups together), picked by [`Picker::choose`]. If it is not loaded, this does what
    /// [`Engine::on_miss`] says.
    ///
    /// A kernel that failed in a warm-up or in the background is not tried again: another stands in for it.
    ///
    /// # Errors
    /// Those of [`Picker::choose`], whatever becomes of a miss; where it waits, those of [`KernelCache::cubin`] and
    /// [`Kernel::load`]; else not loaded, if the kernel is not and no other may or can serve; also if there is no room for it
    /// ([`Engine::reclaims`]).
    pub fn kernel(&self, problem: &Problem, m: u32) -> Result<Selected> {
        self.serve(problem, m, self.on_miss, &|| Ok(()))
    }

    /// As [`Engine::kernel`], with a policy for this call.
    ///
    /// # Errors
    /// As [`Engine::kernel`].
    pub fn kernel_or(&self, problem: &Problem, m: u32, on_miss: OnMiss) -> Result<Selected> {
        self.serve(problem, m, on_miss, &|| Ok(()))
    }

    /// As [`Engine::kernel_or`], for a launch in a stream that may be being captured into a graph: while it is, nothing is
    /// loaded by this call.
    ///
    /// # Errors
    /// As [`Engine::kernel`]; not loaded, if the call would have waited for a load.
    pub fn kernel_in(&self, stream: &CudaStream, problem: &Problem, m: u32, on_miss: OnMiss) -> Result<Selected> {
        self.serve(problem, m, on_miss, &|| loader::not_captured(stream))
    }

    fn serve(&self, problem: &Problem, m: u32, on_miss: OnMiss, may_load: &dyn Fn() -> Result<()>) -> Result<Selected> {
        // The index of problems is without it.
        if problem.m_limit().is_some() {
            problem.check()?;
        }
        let wake = || self.worker.wake();
        // No rows launch nothing, by any kernel.
        let call = Call { problem: problem.for_pick(), m: m.max(1), on_miss, may_load, wake: &wake };
        self.residency.serve(&call).map(Selected)
    }

    /// The kernel for a choice that was made elsewhere, by [`Choice::pinned`] say. Waits for it.
    ///
    /// # Errors
    /// Those of [`KernelCache::cubin`] and [`Kernel::load`].
    pub fn kernel_for(&self, choice: Choice) -> Result<Selected> {
        let made = self.residency.kernel(choice.spec())?;
        let elapsed = made.fetched + made.loaded.map_or(Duration::ZERO, |time| time.waited + time.driver);
        Ok(Selected(Served { choice, wanted: None, kernel: made.value, tier: made.tier, elapsed }))
    }

    /// Compiles what is missing of all that `manifest` can need, loads it, and keeps it loaded. A kernel that fails is said
    /// in the report; calls are then served by another, if there is one.
    pub fn warm_up(&self, manifest: &Manifest) -> WarmUpReport {
        self.warm_up_with(manifest, &WarmUp::new())
    }

    /// As [`Engine::warm_up`], with settings.
    pub fn warm_up_with(&self, manifest: &Manifest, settings: &WarmUp<'_>) -> WarmUpReport {
        settings.residency(&self.residency, manifest)
    }

    /// The kernels of a router, loaded; compiled, if no cache has them. Threads that ask for the same wait for one compile.
    ///
    /// # Errors
    /// Unsupported, if there is no such kernel ([`Route::check`]); those of [`KernelCache::cubin`] and [`Kernel::load`].
    pub fn route(&self, route: &Route) -> Result<Router> {
        route.check()?;
        self.record().note_simt(&(*route).into());
        Ok(Router::new(*route, self.residency.simt((*route).into())?.value))
    }

    /// The kernel that adds up the rows of tokens' experts, loaded, as [`Engine::route`] gives it.
    ///
    /// # Errors
    /// Unsupported, if there is no such kernel ([`Combine::check`]); those of [`KernelCache::cubin`] and [`Kernel::load`].
    pub fn combine(&self, combine: &Combine) -> Result<Combiner> {
        combine.check()?;
        self.record().note_simt(&(*combine).into());
        Ok(Combiner::new(*combine, self.residency.simt((*combine).into())?.value))
    }

    /// The kernels of a whole mixture of experts, for few tokens, loaded, as [`Engine::route`] gives its own. `stream` makes what they count
    /// in, which those have together whose rows need as much.
    pub(crate) fn experts(&self, stream: &Arc<CudaStream>, all: &[Experts]) -> Result<Vec<ExpertsKernel>> {
        let mut made: Vec<ExpertsKernel> = Vec::new();
        for experts in all {
            experts.check()?;
            self.record().note_simt(&(*experts).into());
            let kernel = self.residency.simt((*experts).into())?.value;
            let cells = experts.cell_bytes()?;
            let places = made.iter().map(ExpertsKernel::places).find(|places| places.cell_bytes() == cells);
            let places = places.cloned().map_or_else(|| Places::new(stream, experts), Ok)?;
            made.push(ExpertsKernel::new(*experts, kernel, places, self.device().arch().sms())?);
        }
        Ok(made)
    }

    /// The kernels that make values NVFP4, loaded, as [`Engine::route`] gives its own.
    ///
    /// # Errors
    /// Unsupported, if there is no such kernel ([`Quantise::check`]); those of [`KernelCache::cubin`] and [`Kernel::load`].
    pub fn quantise(&self, quantise: &Quantise) -> Result<Quantiser> {
        quantise.check()?;
        self.record().note_simt(&(*quantise).into());
        Ok(Quantiser::new(*quantise, self.residency.simt((*quantise).into())?.value))
    }

    /// What becomes of a compile from now on: [`KernelCache::seal`]. Engines that share a cache share its seal.
    pub fn seal(&self, seal: Seal) {
        self.residency.cache.seal(seal);
    }

    /// Problems and rows, routers, combiners and quantisers that this engine was asked for.
    #[must_use]
    pub fn record(&self) -> &Recorder {
        &self.residency.recorder
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> EngineStats {
        self.residency.stats()
    }

    /// Why [`Engine::kernel`] picks what it does: [`Picker::explain`].
    ///
    /// # Errors
    /// Those of [`Picker::explain`].
    pub fn explain(&self, problem: &Problem, m: u32) -> Result<Explanation> {
        self.residency.picker.explain(problem, m)
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.residency.loader
    }

    /// What picks its variants.
    #[must_use]
    pub fn picker(&self) -> &Picker {
        &self.residency.picker
    }

    /// What makes its cubins, with its counters.
    #[must_use]
    pub fn cache(&self) -> &KernelCache {
        &self.residency.cache
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kernels, _) = self.residency.loaded.usage();
        write!(f, "engine on {} with {kernels} kernels loaded lately", self.device())
    }
}
