//! Crash isolation: a laboratory whose kernels run in another process.
//!
//! ```text
//! WorkerLaboratory ─ forge, quarantine ─▶ Client ─ request, image ─▶ worker: serve ─ Rig ─ device
//!    this process, never touches the device      ◀─ answer ─         its own context, may hang or crash
//! ```
//!
//! Kernels are built in this process and their machine code is sent, so a worker needs neither compiler nor cache. A
//! worker that does not answer in time is killed, with whatever it has started; one that was lost is replaced when it is
//! next needed, and what has to be timed then is loaded and checked again. It says when it launches: what it comes to
//! before that is an error of the laboratory, and no word on the kernel.

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

use super::keeper::Keeper;
use super::laboratory::{Admission, Laboratory};
use super::quarantine::Quarantine;
use super::setup::Setup;
use client::Client;
use warpsmith::Result;
use warpsmith::cache::Forge;
use warpsmith::spec::Spec;

/// Checks and times kernels in a worker process: one that hangs or faults leaves this process, and its CUDA context if
/// it has one, as they are.
///
/// ```no_run
/// use warpsmith::cache::Forge;
/// use warpsmith::pick;
/// use warpsmith::spec::{Activation, Problem};
/// use warpsmith_tune::{Laboratory, Setup, WorkerCommand, WorkerLaboratory, serve_if_asked};
///
/// serve_if_asked();      // first in main
/// let forge = Forge::new();
/// let problem = Problem::dual_gemm(Activation::Silu).n(4096).k(7168);
/// let mut laboratory = WorkerLaboratory::new(WorkerCommand::this_binary()?, &forge, Setup::new(&problem, 64));
/// let arch = *laboratory.device()?.arch();
/// let spec = *pick::choose(&problem, 64, &arch)?.spec();
/// println!("{}", laboratory.admit(&spec)?);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[derive(Debug)]
pub struct WorkerLaboratory<'f>(Keeper<'f, Client>);

impl<'f> WorkerLaboratory<'f> {
    /// A laboratory whose worker is started when it is first needed. Kernels are built by `forge`, and quarantined
    /// beside its cubins.
    #[must_use]
    pub fn new(command: WorkerCommand, forge: &'f Forge, setup: Setup) -> Self {
        Self(Keeper::new(forge, Quarantine::beside(forge), Client::new(command, setup)))
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
        self.0.stand_mut().deadline = deadline;
        self
    }

    /// How long a worker may take to get ready (default: 180 s).
    #[must_use]
    pub fn opening(mut self, deadline: Duration) -> Self {
        self.0.stand_mut().opening = deadline;
        self
    }

    /// The worker's device; starts a worker if none has been.
    ///
    /// # Errors
    /// Unsupported, if the worker cannot be started; driver, if it does not get ready; those of
    /// [`Device::open`](warpsmith::run::Device::open) in the worker.
    pub fn device(&mut self) -> Result<&WorkerDevice> {
        self.0.stand_mut().device()
    }

    /// How many workers were started so far: one, and one more for each that was lost since.
    #[must_use]
    pub fn starts(&self) -> u64 {
        self.0.stand().starts()
    }
}

impl Laboratory for WorkerLaboratory<'_> {
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
