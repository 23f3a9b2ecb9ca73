//! The device's part: a kernel is loaded and checked.

use std::process;
use std::sync::Arc;

use cudarc::driver::CudaStream;
use warpsmith::cache::KernelCache;
use warpsmith::engine::Engine;
use warpsmith::pick::{Choice, Picker};
use warpsmith::run::Device;
use warpsmith_tune::{Checked, Trial};

use super::ending::WRONG;
use super::{Result, complain};

/// A device with an engine and a stream of its own.
pub struct Gpu {
    engine: Engine,
    stream: Arc<CudaStream>,
}

impl Gpu {
    /// An engine on a device.
    pub fn new(device: &Device, cache: KernelCache) -> Result<Self> {
        Self::with(device, Engine::with_cache(device, cache))
    }

    /// The same, which chooses so.
    pub fn with_picker(device: &Device, cache: KernelCache, picker: Picker) -> Result<Self> {
        Self::with(device, Engine::with_cache_and_picker(device, cache, picker))
    }

    fn with(device: &Device, engine: Engine) -> Result<Self> {
        // SAFETY: this program uses one stream for everything, so no buffer is shared between streams or released
        // while another stream uses it. (Timing captures graphs, which event tracking would break.)
        unsafe { device.context().disable_event_tracking() };
        Ok(Self { engine, stream: device.context().new_stream()? })
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The stream that everything runs in.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// Loads and checks a kernel.
    pub fn check(&self, trial: &Trial<'_>, choice: &Choice) -> Result<Checked> {
        let selected = self.engine.kernel_for(*choice)?;
        Ok(trial.check(selected.kernel()).unwrap_or_else(|error| {
            // A kernel that hangs, or that broke the context, leaves nothing to go on with, not even the release of
            // memory: the process ends here.
            complain!("error: {}: {error}", choice.spec().name());
            process::exit(WRONG.into());
        }))
    }
}
