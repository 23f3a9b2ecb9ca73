//! Machine code on a device, and when it goes.
//!
//! A kernel may still run when its last holder drops it, and a graph may launch it later. So nothing is unloaded there and
//! then: a graph that a launch is captured into holds the code like any other user of it, and code that nobody holds any
//! more is retired. [`Device::reclaim`](super::Device::reclaim) unloads what is retired once everything that was under way
//! on the device then has finished, and waits for none of it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUfunction};
use cudarc::driver::{CudaContext, CudaEvent, CudaFunction, CudaModule, CudaStream, DriverError};
use cudarc::nvrtc::Ptx;

use super::capture::{BesideCaptures, Captured};
use super::turns::{LoadTime, Turns};
use crate::build::Cubin;
use crate::error::{Error, Result};

/// A context's code: what is loaded through one [`Device`](super::Device), its clones and their kernels.
#[derive(Debug)]
pub(super) struct Modules {
    context: Arc<CudaContext>,
    turns: Turns,
    retired: Arc<Retired>,
}

/// A loaded module. Holding it keeps it loaded; dropping it calls nothing of CUDA.
#[derive(Debug)]
pub(super) struct Code {
    module: Arc<CudaModule>,
    retired: Arc<Retired>,
    /// The last capture whose graph came to hold it.
    captured: AtomicU64,
}

/// Modules that nobody holds any more.
#[derive(Debug, Default)]
struct Retired(Mutex<Vec<Module>>);

/// A module to be unloaded when the event has come: nothing is under way any more that was when the event was recorded.
#[derive(Debug)]
struct Module {
    _module: Arc<CudaModule>,
    idle: Option<Arc<CudaEvent>>,
}

/// A kernel's handle, for as long as its [`Code`] is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function(CUfunction);

// SAFETY: a number that the driver takes from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Function {
    pub(super) fn handle(self) -> CUfunction {
        self.0
    }
}

impl From<&CudaFunction> for Function {
    fn from(function: &CudaFunction) -> Self {
        Self(function.cu_function())
    }
}

impl Modules {
    pub(super) fn new(context: &Arc<CudaContext>) -> Arc<Self> {
        Arc::new(Self { context: Arc::clone(context), turns: Turns::of(context), retired: Arc::default() })
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
        // Copied before the turn begins.
        let image = Ptx::from_binary(cubin.image().to_vec());
        self.turns.take(|| set_up(self.code(image).map_err(refused)?))
    }

    fn code(&self, image: Ptx) -> Result<Arc<Code>, DriverError> {
        let _beside = BesideCaptures::new()?;
        let module = self.context.load_module(image)?;
        Ok(Arc::new(Code { module, retired: Arc::clone(&self.retired), captured: AtomicU64::new(0) }))
    }

    /// How many modules wait to be unloaded.
    pub(super) fn retired(&self) -> usize {
        self.retired.lock().len()
    }

    /// Unloads what nothing uses any more; how many modules that were.
    pub(super) fn reclaim(&self) -> Result<usize, DriverError> {
        let mut modules = std::mem::take(&mut *self.retired.lock());
        let marked = self.mark(&mut modules);
        let is_idle = |module: &Module| module.idle.as_ref().is_some_and(|idle| idle.is_complete());
        let (idle, busy): (Vec<_>, Vec<_>) = modules.into_iter().partition(is_idle);
        self.retired.lock().extend(busy);
        let count = idle.len();
        let beside = BesideCaptures::new();
        drop(idle);
        marked.and(beside).map(|_| count)
    }

    /// Gives every module that has none the event that all work now under way in the context is done.
    fn mark(&self, modules: &mut [Module]) -> Result<(), DriverError> {
        if modules.iter().all(|module| module.idle.is_some()) {
            return Ok(());
        }
        let event = Arc::new(self.context.new_event(None)?);
        // SAFETY: both are alive, and the event is of the context.
        unsafe { sys::cuCtxRecordEvent(self.context.cu_ctx(), event.cu_event()) }.result()?;
        modules.iter_mut().for_each(|module| {
            module.idle.get_or_insert_with(|| Arc::clone(&event));
        });
        Ok(())
    }
}

impl Drop for Modules {
    /// Nobody is left who could reclaim.
    fn drop(&mut self) {
        let modules = std::mem::take(&mut *self.retired.lock());
        if modules.is_empty() {
            return;
        }
        let beside = BesideCaptures::new();
        match self.context.synchronize() {
            Ok(()) => drop(modules),
            // They go with the context.
            Err(_) => std::mem::forget(modules),
        }
        drop(beside);
    }
}

impl Code {
    /// One of its kernels, to be asked about and to be set up. A driver that loads lazily does it here.
    pub(super) fn entry(&self, symbol: &str) -> Result<CudaFunction, DriverError> {
        let _beside = BesideCaptures::new()?;
        self.module.load_function(symbol)
    }

    /// Makes the graph that `stream` is being captured into hold it.
    pub(super) fn hold_by_graph(self: &Arc<Self>, stream: &CudaStream) -> Result<(), DriverError> {
        let captured = Captured::of(stream)?;
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
        self.retired.lock().push(Module { _module: Arc::clone(&self.module), idle: None });
    }
}

impl Retired {
    fn lock(&self) -> MutexGuard<'_, Vec<Module>> {
        // Nothing that can panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Retired {
    /// A graph was the last to hold something of a device that is closed. This may be a thread of the driver's, which
    /// must not unload: what is left goes with the context.
    fn drop(&mut self) {
        std::mem::forget(std::mem::take(&mut *self.lock()));
    }
}
