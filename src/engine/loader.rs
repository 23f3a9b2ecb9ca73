//! How machine code gets onto a device.

use cudarc::driver::CudaStream;

use crate::build::Built;
use crate::error::{Error, Result};
use crate::run::{self, Device, Kernel, LoadTime, SimtKernel};
use crate::simt::Simt;

/// What an engine's residency needs of a device. Tests have one that only pretends.
pub(super) trait Loader: Send + Sync + 'static {
    /// A loaded kernel.
    type Kernel: Send + Sync + 'static;
    /// A loaded kernel without matrix instructions.
    type Simt: Send + Sync + 'static;

    /// Loads a kernel.
    fn load(&self, built: &Built) -> Result<Self::Kernel>;

    /// Loads a kernel without matrix instructions.
    fn load_simt(&self, built: &Built<Simt>) -> Result<Self::Simt>;

    /// How many modules of dropped kernels are still loaded.
    fn retired(&self) -> usize;

    /// Whether they may be unloaded at any time, if nobody has said so.
    fn may_reclaim(&self) -> bool;

    /// Unloads those that nothing uses any more; how many those were.
    fn reclaim(&self) -> Result<usize>;

    /// What loading a kernel took.
    fn load_time(kernel: &Self::Kernel) -> LoadTime;

    /// What loading a kernel without matrix instructions took.
    fn simt_load_time(kernel: &Self::Simt) -> LoadTime;

    /// Bytes of a kernel's machine code.
    fn bytes(kernel: &Self::Kernel) -> usize;

    /// Bytes of the machine code of one without matrix instructions.
    fn simt_bytes(kernel: &Self::Simt) -> usize;
}

/// The real thing.
impl Loader for Device {
    type Kernel = Kernel;
    type Simt = SimtKernel;

    fn load(&self, built: &Built) -> Result<Kernel> {
        Kernel::load(self, built)
    }

    fn load_simt(&self, built: &Built<Simt>) -> Result<SimtKernel> {
        SimtKernel::load(self, built)
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

    fn simt_load_time(kernel: &SimtKernel) -> LoadTime {
        kernel.load_time()
    }

    fn bytes(kernel: &Kernel) -> usize {
        kernel.cubin().image().len()
    }

    fn simt_bytes(kernel: &SimtKernel) -> usize {
        kernel.cubin().image().len()
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
