//! A stream that somebody else made, and what launches there keep alive.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::CUstream;
use cudarc::driver::{CudaEvent, CudaStream, DriverError};

use super::refused;
use super::retired::{Owner, Retired};
use super::{Device, capture};
use crate::error::{Error, Result};

/// Owners that one event is recorded for.
const BATCH: usize = 256;
/// Owners that are known to be held: those of launches that are like the last one.
const RECENT: usize = 4;
/// Batches that are ready at the start: more are made where more launches are under way.
const BATCHES: usize = 4;

/// A stream of another cudarc, a framework or a C program, from [`Device::raw_stream`]. Launches there may be given memory
/// with [owners](super::Memory::owner), which it holds until the device has run the launch: it records an event every 256
/// owners, and drops what an event has come for. Nothing is allocated for that unless thousands of launches are under
/// way.
pub struct RawStream {
    stream: Arc<CudaStream>,
    kept: Mutex<Kept>,
    /// Where some of those lie that no event stands for yet. The event that will stand for them is recorded after they are
    /// taken out here, so that who finds an owner here behind a launch of its own knows that it stands for that, too.
    recent: [AtomicPtr<()>; RECENT],
    retired: Arc<Retired>,
    /// What keeps the stream itself alive.
    owner: Option<Owner>,
}

/// Owners, in the order of their launches.
struct Kept {
    /// Those of launches that no event stands for yet.
    open: Vec<Owner>,
    waiting: VecDeque<Batch>,
    spare: Vec<Batch>,
}

struct Batch {
    owners: Vec<Owner>,
    event: CudaEvent,
}

impl Device {
    /// A stream that somebody else made, for launches. Where the context tracks events, cudarc orders its memory for
    /// launches here as for those in its own streams.
    ///
    /// # Safety
    /// `handle` is a stream (`CUstream`, `cudaStream_t`) of the device's context, or 0, 1 or 2 for the default streams; 2 is
    /// another stream on each thread, so then all calls come from one. It stays alive until this is dropped and all
    /// launches in it have run; `owner` sees to that, if it is given. The caller orders its own work with what is launched
    /// here.
    ///
    /// # Errors
    /// Driver, if it makes no event.
    pub unsafe fn raw_stream(&self, handle: *mut std::ffi::c_void, owner: Option<Owner>) -> Result<RawStream> {
        let handle: CUstream = handle.cast();
        // SAFETY: the caller's promise.
        let stream = unsafe { self.context().wrap_borrowed_stream(handle) };
        self.modules().expect_several_streams().map_err(|error| refused("making a stream", error))?;
        let batch = || Batch::new(&stream);
        let spare = (0..BATCHES).map(|_| batch()).collect::<Result<_, _>>();
        let kept = Kept {
            open: Vec::with_capacity(BATCH),
            waiting: VecDeque::with_capacity(BATCHES),
            spare: spare.map_err(|error| refused("making events", error))?,
        };
        let (recent, retired) = (Default::default(), Arc::clone(self.modules().retired()));
        Ok(RawStream { stream, kept: Mutex::new(kept), recent, retired, owner })
    }
}

impl RawStream {
    /// Drops the owners of all launches that the device has run; how many are still held. Launches do it by themselves,
    /// every few; this is for a quiet moment.
    ///
    /// # Errors
    /// Operand, if the stream is being captured; driver, if it does not record an event.
    pub fn release(&self) -> Result<usize> {
        if capture::is_captured(&self.stream)? {
            return Err(Error::operand("the stream is being captured: release its owners later"));
        }
        self.close(&mut self.lock()).map_err(|error| refused("recording an event", error))?;
        self.drop_done();
        Ok(self.lock().held())
    }

    /// The stream as cudarc's.
    #[must_use]
    pub fn cudarc(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// Where what a graph held goes.
    pub(super) fn retired(&self) -> &Arc<Retired> {
        &self.retired
    }

    /// Holds a clone of `owner` until what is in the stream now has run.
    #[inline]
    pub(super) fn keep(&self, owner: &Owner) {
        let place = place_of(owner);
        if !self.recent.iter().any(|recent| recent.load(SeqCst) == place) {
            self.keep_one(owner);
        }
    }

    fn keep_one(&self, owner: &Owner) {
        let mut kept = self.lock();
        let next = kept.open.len();
        kept.open.push(Owner::clone(owner));
        self.recent[next % RECENT].store(place_of(owner), SeqCst);
        if next + 1 >= BATCH {
            // If no event can be recorded they stay until one can.
            self.stream.context().record_err(self.close(&mut kept));
            drop(kept);
            self.drop_done();
        }
    }

    /// Records an event behind the launches so far.
    fn close(&self, kept: &mut Kept) -> Result<(), DriverError> {
        self.recent.iter().for_each(|recent| recent.store(ptr::null_mut(), SeqCst));
        kept.close(&self.stream)
    }

    /// Drops the owners of batches whose event has come: without the lock, since they may do anything.
    fn drop_done(&self) {
        loop {
            let done = self.lock().next_done();
            let Some(mut batch) = done else { return };
            batch.owners.clear();
            self.lock().spare.push(batch);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Nothing that can panic leaves it half changed.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where an owner lies. No other does as long as it is held.
#[inline]
fn place_of(owner: &Owner) -> *mut () {
    Arc::as_ptr(owner).cast_mut().cast()
}

impl Kept {
    /// Records an event behind the launches so far.
    fn close(&mut self, stream: &Arc<CudaStream>) -> Result<(), DriverError> {
        if self.open.is_empty() {
            return Ok(());
        }
        let mut batch = self.spare.pop().map_or_else(|| Batch::new(stream), Ok)?;
        if let Err(error) = batch.event.record(stream) {
            self.spare.push(batch);
            return Err(error);
        }
        mem::swap(&mut batch.owners, &mut self.open);
        self.waiting.push_back(batch);
        Ok(())
    }

    /// The oldest batch, if its event has come.
    fn next_done(&mut self) -> Option<Batch> {
        let has_come = self.waiting.front().is_some_and(|batch| batch.event.is_complete());
        if has_come { self.waiting.pop_front() } else { None }
    }

    fn held(&self) -> usize {
        self.open.len() + self.waiting.iter().map(|batch| batch.owners.len()).sum::<usize>()
    }
}

impl Batch {
    fn new(stream: &CudaStream) -> Result<Self, DriverError> {
        Ok(Self { owners: Vec::with_capacity(BATCH), event: stream.context().new_event(None)? })
    }
}

impl Drop for RawStream {
    /// What is still under way keeps its owners: they are retired.
    fn drop(&mut self) {
        let kept = self.kept.get_mut().unwrap_or_else(PoisonError::into_inner);
        for batch in kept.waiting.drain(..) {
            self.retired.take_until(batch.owners, batch.event);
        }
        let last = kept.open.drain(..).chain(self.owner.take());
        match self.stream.record_event(None) {
            Ok(event) => self.retired.take_until(last, event),
            Err(_) => last.for_each(|owner| self.retired.take(owner)),
        }
    }
}

impl fmt::Debug for RawStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "raw stream {:?} with {} owners held", self.stream.cu_stream(), self.lock().held())
    }
}

impl Deref for RawStream {
    type Target = CudaStream;

    fn deref(&self) -> &CudaStream {
        &self.stream
    }
}

/// A stream that kernels are launched in: one of cudarc's, or a [`RawStream`].
pub trait LaunchStream: sealed::Sealed {
    /// As cudarc's.
    #[doc(hidden)]
    fn stream(&self) -> &CudaStream;

    /// Where owners are held.
    #[doc(hidden)]
    fn keeper(&self) -> Option<&RawStream> {
        None
    }
}

impl LaunchStream for CudaStream {
    #[inline]
    fn stream(&self) -> &CudaStream {
        self
    }
}

impl LaunchStream for Arc<CudaStream> {
    #[inline]
    fn stream(&self) -> &CudaStream {
        self
    }
}

impl LaunchStream for RawStream {
    #[inline]
    fn stream(&self) -> &CudaStream {
        &self.stream
    }

    #[inline]
    fn keeper(&self) -> Option<&RawStream> {
        Some(self)
    }
}

mod sealed {
    use std::sync::Arc;

    use cudarc::driver::CudaStream;

    pub trait Sealed {}

    impl Sealed for CudaStream {}
    impl Sealed for Arc<CudaStream> {}
    impl Sealed for super::RawStream {}
}
