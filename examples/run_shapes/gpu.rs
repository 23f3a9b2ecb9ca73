//! The device's part: a kernel is loaded, checked, and timed if it is right.

use std::process;
use std::sync::Arc;

use cudarc::driver::CudaStream;
use warpsmith::cache::Forge;
use warpsmith::engine::Engine;
use warpsmith::pick::Choice;
use warpsmith::run::{Device, Timing};
use warpsmith::tune::{Checked, Trial};

use crate::Result;

/// A device with an engine and a stream of its own.
pub struct Gpu {
    engine: Engine,
    stream: Arc<CudaStream>,
    /// Whether calls are timed that may begin while the one before still runs.
    dependent: bool,
}

impl Gpu {
    /// An engine on a device.
    pub fn new(device: &Device, forge: Forge, dependent: bool) -> Result<Self> {
        // SAFETY: this program uses one stream for everything, so no buffer is shared between streams or released
        // while another stream uses it. (Timing captures graphs, which event tracking would break.)
        unsafe { device.context().disable_event_tracking() };
        Ok(Self { engine: Engine::with_forge(device, forge), stream: device.context().new_stream()?, dependent })
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The stream that everything runs in.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// Loads, checks and, if it is right, times a kernel.
    pub fn measure(&self, trial: &mut Trial<'_>, choice: &Choice) -> Result<(Checked, Option<Timing>)> {
        let selected = self.engine.kernel_for(*choice)?;
        let checked = trial.check(selected.kernel()).unwrap_or_else(|error| {
            // A kernel that hangs, or that broke the context, leaves nothing to go on with, not even the release of
            // memory: the process ends here.
            eprintln!("error: {}: {error}", choice.spec().name());
            process::exit(3);
        });
        let timing = match checked.passed() {
            true if self.dependent => Some(trial.time_dependent(&checked)?),
            true => Some(trial.time(&checked)?),
            false => None,
        };
        Ok((checked, timing))
    }
}
