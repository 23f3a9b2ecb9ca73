//! What nobody holds any more, but the device may still be using.
//!
//! A kernel may still run when its last holder drops it, and what a graph held is given back on a thread of the driver's, on
//! which nothing of CUDA may be called. So such things are retired instead of dropped.
//! [`Device::reclaim`](super::Device::reclaim) drops what is retired once everything that was under way on the device then
//! has finished, and waits for none of it.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::{CudaContext, CudaEvent, DriverError};

use super::capture::BesideCaptures;
use super::driver::driver;
use super::module::Module;
use super::refused;
use crate::error::Result;

/// Keeps something alive, whatever it is: foreign memory, a stream, a module.
pub type Owner = Arc<dyn Any + Send + Sync>;

/// What waits to be dropped, of one context.
#[derive(Debug, Default)]
pub(super) struct Retired(Mutex<Vec<Waiting>>);

/// Dropped when the event has come: nothing is under way any more that was when the event was recorded.
struct Waiting {
    owner: Owner,
    idle: Option<Arc<CudaEvent>>,
}

impl Waiting {
    fn is_module(&self) -> bool {
        self.owner.is::<Module>()
    }
}

impl Retired {
    /// Takes something in that may still be in use. Calls nothing of CUDA.
    pub(super) fn take(&self, owner: Owner) {
        self.lock().push(Waiting { owner, idle: None });
    }

    /// As [`Retired::take`], for what is known to be in use until an event comes.
    pub(super) fn take_until(&self, owners: impl IntoIterator<Item = Owner>, idle: CudaEvent) {
        let idle = Arc::new(idle);
        self.lock().extend(owners.into_iter().map(|owner| Waiting { owner, idle: Some(Arc::clone(&idle)) }));
    }

    /// Owners that are retired when the last holder, a graph, drops them.
    pub(super) fn when_dropped(self: &Arc<Self>, owners: Vec<Owner>) -> Arc<RetiredWhenDropped> {
        Arc::new(RetiredWhenDropped { owners, retired: Arc::clone(self) })
    }

    /// How many modules wait.
    pub(super) fn modules(&self) -> usize {
        self.lock().iter().filter(|waiting| waiting.is_module()).count()
    }

    /// Drops what nothing uses any more; how many modules that were.
    pub(super) fn reclaim(&self, context: &Arc<CudaContext>) -> Result<usize> {
        let mut all = std::mem::take(&mut *self.lock());
        let marked = mark(context, &mut all);
        let is_idle = |waiting: &Waiting| waiting.idle.as_ref().is_some_and(|idle| idle.is_complete());
        let (idle, busy): (Vec<_>, Vec<_>) = all.into_iter().partition(is_idle);
        self.lock().extend(busy);
        let count = idle.iter().filter(|waiting| waiting.is_module()).count();
        let beside = BesideCaptures::new();
        drop(idle);
        marked?;
        beside.map(|_| count).map_err(|error| refused("dropping what was retired beside captures", error))
    }

    /// Drops everything, after waiting for the device: nobody is left who could reclaim.
    pub(super) fn drop_all(&self, context: &CudaContext) {
        let all = std::mem::take(&mut *self.lock());
        if all.is_empty() {
            return;
        }
        let beside = BesideCaptures::new();
        match context.synchronize() {
            Ok(()) => drop(all),
            // They go with the context.
            Err(_) => std::mem::forget(all),
        }
        drop(beside);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Waiting>> {
        // Nothing that can panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a graph holds.
pub(super) struct RetiredWhenDropped {
    owners: Vec<Owner>,
    retired: Arc<Retired>,
}

impl Drop for RetiredWhenDropped {
    fn drop(&mut self) {
        self.owners.drain(..).for_each(|owner| self.retired.take(owner));
    }
}

/// Gives everything that has none the event that all work now under way in the context is done.
fn mark(context: &Arc<CudaContext>, all: &mut [Waiting]) -> Result<()> {
    if all.iter().all(|waiting| waiting.idle.is_some()) {
        return Ok(());
    }
    let record_context = driver()?.record_context;
    let record = || -> Result<_, DriverError> {
        let event = context.new_event(None)?;
        match record_context {
            // SAFETY: both are alive, and the event is of the context.
            Some(record) => unsafe { record(context.cu_ctx(), event.cu_event()) }.result()?,
            // Then nothing is under way, and an event that was never recorded counts as come.
            None => context.synchronize()?,
        }
        Ok(event)
    };
    let event = Arc::new(record().map_err(|error| refused("marking what is under way", error))?);
    all.iter_mut().for_each(|waiting| {
        waiting.idle.get_or_insert_with(|| Arc::clone(&event));
    });
    Ok(())
}

impl Drop for Retired {
    /// A graph was the last to hold something of a device that is closed. This may be a thread of the driver's, which
    /// must not unload: what is left goes with the context.
    fn drop(&mut self) {
        std::mem::forget(std::mem::take(&mut *self.lock()));
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_module() { "a module" } else { "an owner" };
        write!(f, "{what}, {}", if self.idle.is_some() { "marked" } else { "not marked" })
    }
}
