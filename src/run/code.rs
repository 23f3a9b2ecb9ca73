//! Machine code on a device.
//!
//! A graph that a launch is captured into holds the code like any other user of it; code that nobody holds any more is
//! retired, not unloaded there and then.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use cudarc::driver::{CudaContext, CudaStream, DriverError};

use super::capture::{BesideCaptures, Captured};
use super::load_lock::{LoadLock, LoadTime};
use super::module::{Function, Module};
use super::retired::{Owner, Retired};
use crate::build::Cubin;
use crate::error::{Error, Result};

/// A context's code: what is loaded through one [`Device`](super::Device), its clones and their kernels.
#[derive(Debug)]
pub(super) struct Modules {
    context: Arc<CudaContext>,
    turns: LoadLock,
    retired: Arc<Retired>,
    /// Keeps cudarc ordering memory between streams: it does so where it has made one.
    several: OnceLock<Arc<CudaStream>>,
    /// What keeps the context alive, if it is somebody else's; dropped after all that is in it.
    _owner: Option<Owner>,
}

/// A loaded module. Holding it keeps it loaded; dropping it calls nothing of CUDA.
#[derive(Debug)]
pub(super) struct Code {
    module: Arc<Module>,
    retired: Arc<Retired>,
    /// The last capture whose graph came to hold it.
    captured: AtomicU64,
}

impl Modules {
    pub(super) fn new(context: &Arc<CudaContext>, owner: Option<Owner>) -> Arc<Self> {
        let (context, turns) = (Arc::clone(context), LoadLock::of(context));
        Arc::new(Self { context, turns, retired: Arc::default(), several: OnceLock::new(), _owner: owner })
    }

    pub(super) fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// Loads machine code, also while other threads capture graphs, and does with it what is to be done before the next
    /// load of this context begins: a driver that loads lazily does part of it when functions are asked for.
    pub(super) fn load<T>(
        &self,
        cubin: &Cubin,
        refused: impl FnOnce(DriverError) -> Error,
        set_up: impl FnOnce(Arc<Code>) -> Result<T>,
    ) -> Result<(T, LoadTime)> {
        self.turns.take(|| set_up(self.code(cubin).map_err(refused)?))
    }

    fn code(&self, cubin: &Cubin) -> Result<Arc<Code>, DriverError> {
        let _beside = BesideCaptures::new()?;
        let module = Arc::new(Module::load(&self.context, cubin)?);
        Ok(Arc::new(Code { module, retired: Arc::clone(&self.retired), captured: AtomicU64::new(0) }))
    }

    /// Makes cudarc order memory between streams, as far as it tracks it, also where it has made none of them.
    pub(super) fn expect_several_streams(&self) -> Result<(), DriverError> {
        if self.several.get().is_none() && self.context.is_event_tracking() {
            // Another thread's may be there by now, which does as well.
            self.several.set(self.context.new_stream()?).ok();
        }
        Ok(())
    }

    /// What waits to be unloaded or dropped.
    pub(super) fn retired(&self) -> &Arc<Retired> {
        &self.retired
    }
}

impl Drop for Modules {
    fn drop(&mut self) {
        self.retired.drop_all(&self.context);
    }
}

impl Code {
    /// One of its kernels, to be asked about and to be set up. A driver that loads lazily does it here.
    pub(super) fn entry(&self, symbol: &str) -> Result<Function, DriverError> {
        let _beside = BesideCaptures::new()?;
        self.module.function(symbol)
    }

    /// Makes the graph that `stream` is being captured into hold it.
    ///
    /// # Errors
    /// Driver, if it refuses that.
    pub(super) fn hold_by_graph(self: &Arc<Self>, captured: &Captured) -> Result<()> {
        // A graph with a thousand launches of a kernel holds it once.
        if self.captured.load(Relaxed) != captured.id {
            captured.hold(Arc::clone(self))?;
            self.captured.store(captured.id, Relaxed);
        }
        Ok(())
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        let module: Arc<Module> = Arc::clone(&self.module);
        self.retired.take(module);
    }
}
