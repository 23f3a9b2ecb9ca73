//! A measurer in this process.

use super::local_backend::LocalBackend;
use super::measure::{Admission, Measure};
use super::measurer::Measurer;
use super::quarantine::Quarantine;
use super::setup::Setup;
use warpsmith::Result;
use warpsmith::cache::KernelCache;
use warpsmith::spec::{Arch, Spec};

/// Checks and times kernels in this process.
///
/// A kernel that hangs or faults takes the device's primary context with it, which everything else in the process
/// shares: the measurer answers [`Rejection::Hangs`](super::Rejection::Hangs) or
/// [`Rejection::Crashes`](super::Rejection::Crashes), and from then on is an error. For candidates that nobody has tried
/// take a [`WorkerMeasurer`](super::WorkerMeasurer). After a hang, dropping the measurer may wait for the kernel.
#[derive(Debug)]
pub struct LocalMeasurer<'f>(Measurer<'f, LocalBackend>);

impl<'f> LocalMeasurer<'f> {
    /// Opens the setup's device, in a stream of its own, and puts operands on it. Kernels are built by `cache`, and
    /// quarantined beside its cubins.
    ///
    /// # Errors
    /// Data, if the setup's rows do not fit its problem; those of [`Device::open`](warpsmith::run::Device::open); driver, if the device has no room.
    pub fn open(cache: &'f KernelCache, setup: Setup) -> Result<Self> {
        Ok(Self(Measurer::new(cache, Quarantine::beside(cache), LocalBackend::open(setup)?)))
    }

    /// With another quarantine.
    #[must_use]
    pub fn quarantine(mut self, quarantine: Quarantine) -> Self {
        self.0.set_quarantine(quarantine);
        self
    }

    /// What the driver calls its device, such as `NVIDIA H200`.
    #[must_use]
    pub fn device_name(&self) -> &str {
        self.0.backend().device().name()
    }

    /// The device's row of hardware numbers: what specs for this measurer are made with. The device itself stays here:
    /// cudarc's event tracking is off in its context, which holds for the measurer's one stream only.
    #[must_use]
    pub fn arch(&self) -> &Arch {
        self.0.backend().device().arch()
    }
}

impl Measure for LocalMeasurer<'_> {
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
