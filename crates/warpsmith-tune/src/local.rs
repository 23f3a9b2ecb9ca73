//! A laboratory in this process.

use super::keeper::Keeper;
use super::laboratory::{Admission, Laboratory};
use super::quarantine::Quarantine;
use super::rig::Rig;
use super::setup::Setup;
use warpsmith::Result;
use warpsmith::cache::Forge;
use warpsmith::spec::{Arch, Spec};

/// Checks and times kernels in this process.
///
/// A kernel that hangs or faults takes the device's primary context with it, which everything else in the process
/// shares: the laboratory answers [`Rejection::Hangs`](super::Rejection::Hangs) or
/// [`Rejection::Crashes`](super::Rejection::Crashes), and from then on is an error. For candidates that nobody has tried
/// take a [`WorkerLaboratory`](super::WorkerLaboratory). After a hang, dropping the laboratory may wait for the kernel.
#[derive(Debug)]
pub struct LocalLaboratory<'f>(Keeper<'f, Rig>);

impl<'f> LocalLaboratory<'f> {
    /// Opens the setup's device, in a stream of its own, and puts operands on it. Kernels are built by `forge`, and
    /// quarantined beside its cubins.
    ///
    /// # Errors
    /// Data, if the setup's rows do not fit its problem; those of [`Device::open`](warpsmith::run::Device::open); driver, if the device has no room.
    pub fn open(forge: &'f Forge, setup: Setup) -> Result<Self> {
        Ok(Self(Keeper::new(forge, Quarantine::beside(forge), Rig::open(setup)?)))
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
        self.0.stand().device().name()
    }

    /// The device's row of hardware numbers: what specs for this laboratory are made with. The device itself stays here:
    /// cudarc's event tracking is off in its context, which holds for the laboratory's one stream only.
    #[must_use]
    pub fn arch(&self) -> &Arch {
        self.0.stand().device().arch()
    }
}

impl Laboratory for LocalLaboratory<'_> {
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
