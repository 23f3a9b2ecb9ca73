//! Crash isolation: a measurer whose kernels run in another process.
//!
//! ```text
//! WorkerMeasurer ─ cache, quarantine ─▶ Client ─ request, image ─▶ worker: serve ─ LocalBackend ─ device
//!    this process, never touches the device      ◀─ answer ─         its own context, may hang or crash
//! ```
//!
//! Kernels are built in this process and their machine code is sent, so a worker needs neither compiler nor cache. A
//! worker that does not answer in time is killed, with whatever it has started; one that was lost is replaced when it is
//! next needed, and what has to be timed then is loaded and checked again. It says when it launches: what it comes to
//! before that is an error of the measurer, and no word on the kernel.

mod client;
mod command;
mod process;
mod protocol;
mod serve;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use command::WorkerCommand;
pub use protocol::WorkerDevice;
pub use serve::{serve, serve_if_asked};

use super::measure::{Admission, Measure};
use super::measurer::Measurer;
use super::quarantine::Quarantine;
use super::setup::Setup;
use client::Client;
use warpsmith::Result;
use warpsmith::cache::KernelCache;
use warpsmith::spec::Spec;

/// Checks and times kernels in a worker process: one that hangs or faults leaves this process, and its CUDA context if
/// it has one, as they are.
///
/// ```no_run
/// use warpsmith::cache::KernelCache;
/// use warpsmith::pick;
/// use warpsmith::spec::{Activation, Problem};
/// use warpsmith_tune::{Measure, Setup, WorkerCommand, WorkerMeasurer, serve_if_asked};
///
/// serve_if_asked();      // first in main
/// let cache = KernelCache::new();
/// let problem = Problem::dual_gemm(Activation::Silu).n(4096).k(7168);
/// let mut measurer = WorkerMeasurer::new(WorkerCommand::this_binary()?, &cache, Setup::new(&problem, 64));
/// let arch = *measurer.device()?.arch();
/// let spec = *pick::choose(&problem, 64, &arch)?.spec();
/// println!("{}", measurer.admit(&spec)?);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[derive(Debug)]
pub struct WorkerMeasurer<'f>(Measurer<'f, Client>);

impl<'f> WorkerMeasurer<'f> {
    /// A measurer whose worker is started when it is first needed. Kernels are built by `cache`, and quarantined
    /// beside its cubins.
    #[must_use]
    pub fn new(command: WorkerCommand, cache: &'f KernelCache, setup: Setup) -> Self {
        Self(Measurer::new(cache, Quarantine::beside(cache), Client::new(command, setup)))
    }

    /// With another quarantine.
    #[must_use]
    pub fn quarantine(mut self, quarantine: Quarantine) -> Self {
        self.0.set_quarantine(quarantine);
        self
    }

    /// How long an answer may take before the worker is given up (default: 30 s): the kernel counts as one that hangs, if
    /// it was launched. It has to be longer than [`Setup::limit`], by which the worker itself finds out.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.0.backend_mut().deadline = deadline;
        self
    }

    /// How long a worker may take to get ready (default: 180 s).
    #[must_use]
    pub fn opening(mut self, deadline: Duration) -> Self {
        self.0.backend_mut().opening = deadline;
        self
    }

    /// For another setup from now on: its kernels are admitted anew. A worker that runs stays, and so do the weights that it
    /// has on the device if they are of the same problem; they are the larger part of what opening takes.
    pub fn turn_to(&mut self, setup: Setup) {
        self.0.forget();
        self.0.backend_mut().turn_to(setup);
    }

    /// The worker's device; starts a worker if none has been.
    ///
    /// # Errors
    /// Unsupported, if the worker cannot be started; driver, if it does not get ready; those of
    /// [`Device::open`](warpsmith::run::Device::open) in the worker.
    pub fn device(&mut self) -> Result<&WorkerDevice> {
        self.0.backend_mut().device()
    }

    /// How many workers were started so far: one, and one more for each that was lost since.
    #[must_use]
    pub fn starts(&self) -> u64 {
        self.0.backend().starts()
    }
}

impl Measure for WorkerMeasurer<'_> {
    fn admit(&mut self, spec: &Spec) -> Result<Admission> {
        self.0.admit(spec)
    }

    fn screen(&mut self, spec: &Spec) -> Result<f64> {
        self.0.screen(spec)
    }

    fn duel(&mut self, incumbent: &Spec, challenger: &Spec, pairs: usize) -> Result<Vec<(f64, f64)>> {
        self.0.duel(incumbent, challenger, pairs)
    }
}
