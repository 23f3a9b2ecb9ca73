//! How machine code gets onto a device.

use cudarc::driver::CudaStream;

use crate::build::{Built, Preparation};
use crate::error::{Error, Result};
use crate::run::{self, Device, Kernel, LoadTime, Preparer};

/// What an engine's residency needs of a device. Tests have one that only pretends.
pub(super) trait Loader: Send + Sync + 'static {
    /// A loaded kernel.
    type Kernel: Send + Sync + 'static;
    /// A loaded kernel that prepares weights.
    type Preparer: Send + Sync + 'static;

    /// Loads a kernel.
    fn load(&self, built: &Built) -> Result<Self::Kernel>;

    /// Loads a kernel that prepares weights.
    fn load_preparer(&self, built: &Built<Preparation>) -> Result<Self::Preparer>;

    /// How many modules of dropped kernels are still loaded.
    fn retired(&self) -> usize;

    /// Whether they may be unloaded at any time, if nobody has said so.
    fn may_reclaim(&self) -> bool;

    /// Unloads those that nothing uses any more; how many those were.
    fn reclaim(&self) -> Result<usize>;

    /// What loading a kernel took.
    fn load_time(kernel: &Self::Kernel) -> LoadTime;

    /// What loading a kernel that prepares weights took.
    fn preparer_load_time(preparer: &Self::Preparer) -> LoadTime;

    /// Bytes of a kernel's machine code.
    fn bytes(kernel: &Self::Kernel) -> usize;

    /// Bytes of a preparer's machine code.
    fn preparer_bytes(preparer: &Self::Preparer) -> usize;
}

/// The real thing.
impl Loader for Device {
    type Kernel = Kernel;
    type Preparer = Preparer;

    fn load(&self, built: &Built) -> Result<Kernel> {
        Kernel::load(self, built)
    }

    fn load_preparer(&self, built: &Built<Preparation>) -> Result<Preparer> {
        Preparer::load(self, built)
    }

    fn retired(&self) -> usize {
        Device::retired(self)
    }

    fn may_reclaim(&self) -> bool {
        // No launch is captured then (src/run/kernel/dispatch.rs refuses it).
        self.context().is_event_tracking()
    }

    fn reclaim(&self) -> Result<usize> {
        Device::reclaim(self)
    }

    fn load_time(kernel: &Kernel) -> LoadTime {
        kernel.load_time()
    }

    fn preparer_load_time(preparer: &Preparer) -> LoadTime {
        preparer.load_time()
    }

    fn bytes(kernel: &Kernel) -> usize {
        kernel.cubin().image().len()
    }

    fn preparer_bytes(preparer: &Preparer) -> usize {
        preparer.cubin().image().len()
    }
}

/// Refuses to load for a launch in a stream that is being captured.
pub(super) fn not_captured(stream: &CudaStream) -> Result<()> {
    match run::is_captured(stream)? {
        false => Ok(()),
        true => Err(Error::not_loaded(
            "the stream is being captured, and loading now would spoil that; remedy: warm up, or ask for the kernel, before",
        )),
    }
}
