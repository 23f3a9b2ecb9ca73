//! Device memory that several streams read at a time.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::{CudaEvent, CudaSlice, CudaStream, DriverError};

use super::capture::BesideCaptures;
use super::check::{Buffer, ContextId};
use super::guards::{Guards, address_without_use};
use super::memory::Memory;
use super::retired::{Owner, Retired};
use super::{Device, refused};
use crate::error::Result;

/// Streams whose finished readers are forgotten when there are more.
const READERS: usize = 8;

/// Device memory of `T`s for as long as its holder lives: a slice of cudarc's, or memory that somebody else manages
/// ([`OwnedMemory::from_raw`]).
pub struct OwnedMemory<T>(Held<T>);

enum Held<T> {
    Slice(CudaSlice<T>),
    Foreign { address: u64, elements: u64, owner: Option<Owner>, retired: Arc<Retired> },
}

impl<T> OwnedMemory<T> {
    /// `elements` values at an address of `device`. `owner` is dropped when the holder is and nothing on the device can be
    /// using the memory any more ([`Device::reclaim`]).
    ///
    /// # Safety
    /// The memory stays allocated, and nothing but its holder's launches uses it, until `owner` is dropped; without one,
    /// until the holder is gone and all its launches have run. Streams that it is used in have waited for what used it
    /// before.
    pub unsafe fn from_raw(device: &Device, address: u64, elements: usize, owner: Option<Owner>) -> Self {
        let (elements, retired) = (elements as u64, Arc::clone(device.modules().retired()));
        Self(Held::Foreign { address, elements, owner, retired })
    }

    /// How many values there is room for.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.buffer().elements
    }

    #[inline]
    pub(super) fn buffer(&self) -> Buffer {
        match &self.0 {
            Held::Slice(slice) => Buffer::of(slice),
            Held::Foreign { elements, .. } => Buffer { elements: *elements, context: Buffer::ANY, ordinal: 0 },
        }
    }

    /// To be read.
    #[inline]
    pub(super) fn memory(&self) -> Memory<'_, T> {
        match &self.0 {
            Held::Slice(slice) => slice.into(),
            // SAFETY: it is this one's, whose maker has promised the rest.
            Held::Foreign { address, elements, .. } => unsafe {
                Memory::from_raw(*address, usize::try_from(*elements).unwrap_or(usize::MAX))
            },
        }
    }

    /// Its address, for nothing to be done with it but to be remembered.
    pub(super) fn place(&self) -> u64 {
        match &self.0 {
            Held::Slice(slice) => address_without_use(slice, slice.stream()),
            Held::Foreign { address, .. } => *address,
        }
    }

    /// Its address, for a launch on `stream` that writes it.
    pub(super) fn written<'b>(&'b mut self, stream: &'b CudaStream, guards: &mut impl Guards<'b>) -> u64 {
        match &mut self.0 {
            Held::Slice(slice) => guards.write_slice(slice, stream),
            Held::Foreign { address, .. } => *address,
        }
    }
}

impl<T> From<CudaSlice<T>> for OwnedMemory<T> {
    fn from(slice: CudaSlice<T>) -> Self {
        Self(Held::Slice(slice))
    }
}

impl<T> Drop for OwnedMemory<T> {
    fn drop(&mut self) {
        if let Held::Foreign { owner, retired, .. } = &mut self.0
            && let Some(owner) = owner.take()
        {
            retired.take(owner);
        }
    }
}

impl<T> fmt::Debug for OwnedMemory<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} elements", self.elements())
    }
}

/// Device memory that is written once and then read, by any number of streams at a time: weights.
///
/// A slice of cudarc's has one event for all that read it. This has one a stream, so that streams do not wait for each
/// other, and the memory is freed when all of them are done. Clones share the memory.
///
/// Where cudarc's event tracking is off, whoever turned it off vouches for the order, as for all of cudarc's memory.
pub struct Shared<T>(Arc<Inner<T>>);

struct Inner<T> {
    memory: OwnedMemory<T>,
    /// Of the memory, looked up once.
    buffer: Buffer,
    address: u64,
    written: Written,
    readers: Readers,
}

/// When what was written is there.
struct Written {
    /// None, if it is not known.
    event: Option<CudaEvent>,
    /// Set when the event was seen to have come.
    is_there: AtomicBool,
}

/// The event of each stream's last launch that reads it.
#[derive(Default)]
pub(super) struct Readers(Mutex<Vec<(usize, CudaEvent)>>);

impl<T> Shared<T> {
    /// From memory that is written when `stream` has come to this point.
    ///
    /// # Errors
    /// Operand, if stream and memory are of two contexts; driver, if it makes no event.
    pub fn written_in(stream: &CudaStream, memory: impl Into<OwnedMemory<T>>) -> Result<Self> {
        let memory = memory.into();
        ContextId::of(stream).check("the memory", &memory.buffer())?;
        if let Held::Slice(slice) = &memory.0 {
            // The stream waits for what wrote it in others, as far as cudarc tracks that.
            address_without_use(slice, stream);
        }
        Ok(Self::of(memory, Written::by(stream)?))
    }

    fn of(memory: OwnedMemory<T>, written: Written) -> Self {
        let (buffer, address) = (memory.buffer(), memory.place());
        Self(Arc::new(Inner { memory, buffer, address, written, readers: Readers::default() }))
    }

    /// How many values there are.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.buffer().elements
    }

    /// The slice, if it is one of cudarc's.
    pub(super) fn slice(&self) -> Option<&CudaSlice<T>> {
        if let Held::Slice(slice) = &self.0.memory.0 { Some(slice) } else { None }
    }

    #[inline(always)]
    pub(super) fn buffer(&self) -> Buffer {
        self.0.buffer
    }

    /// Its address, for a launch on `stream`.
    #[inline(always)]
    pub(super) fn address<'b, G: Guards<'b>>(&'b self, stream: &'b CudaStream, guards: &mut G) -> u64 {
        if G::TRACKS {
            if let Some(slice) = self.slice() {
                // Waits for what wrote it. What reads it is noted here, not in its one event.
                address_without_use(slice, stream);
            }
            guards.shared(&self.0.readers, stream);
        }
        self.0.address
    }

    /// Its address, for nothing to be done with it but to be remembered.
    pub(super) fn place(&self) -> u64 {
        self.0.address
    }

    /// Whether what was written is there, as far as is known: then a launch may read it before what is ahead of it in its
    /// stream is done. While a stream is being captured only what was seen before counts.
    #[inline]
    pub(super) fn is_there(&self) -> bool {
        self.0.written.is_there.load(Relaxed)
    }

    /// Orders a launch on `stream` behind what wrote it. A captured launch may be replayed anywhere, so for that this waits
    /// until it is written.
    #[inline]
    pub(super) fn order(&self, stream: &CudaStream, is_captured: bool) -> Result<()> {
        if self.is_there() { Ok(()) } else { self.0.written.order(stream, is_captured) }
    }

    /// To be held by a graph.
    pub(super) fn as_owner(&self) -> Owner
    where
        T: Send + Sync + 'static,
    {
        let inner: Arc<Inner<T>> = Arc::clone(&self.0);
        inner
    }
}

impl<T> Drop for Inner<T> {
    fn drop(&mut self) {
        // A slice is freed in its stream when all readers are done.
        if let Held::Slice(slice) = &self.memory.0 {
            self.readers.join(slice.stream());
        }
    }
}

impl Written {
    fn by(stream: &CudaStream) -> Result<Self> {
        let event = stream.record_event(None).map_err(|error| refused("recording an event", error))?;
        Ok(Self { event: Some(event), is_there: AtomicBool::new(false) })
    }

    fn unknown() -> Self {
        Self { event: None, is_there: AtomicBool::new(false) }
    }

    #[cold]
    fn order(&self, stream: &CudaStream, is_captured: bool) -> Result<()> {
        let Some(event) = &self.event else { return Ok(()) };
        let ask = || -> Result<bool, DriverError> {
            // Asking would spoil a capture of the mode "global".
            let _beside = BesideCaptures::new()?;
            if is_captured {
                event.synchronize()?;
            }
            let has_come = event.try_is_complete()?;
            if !has_come {
                stream.wait(event)?;
            }
            Ok(has_come)
        };
        let has_come = ask().map_err(|error| refused("ordering the launch behind what writes the weights", error))?;
        self.is_there.fetch_or(has_come, Relaxed);
        Ok(())
    }
}

impl Readers {
    /// Records that everything in `stream` so far may read the memory.
    fn note_or(&self, stream: &CudaStream) -> Result<(), DriverError> {
        let handle = stream.cu_stream() as usize;
        let mut readers = self.lock();
        if let Some((_, event)) = readers.iter().find(|(known, _)| *known == handle) {
            // The handle may be that of a stream which is gone, or stand for another stream on each thread.
            stream.wait(event)?;
            return event.record(stream);
        }
        if readers.len() >= READERS {
            readers.retain(|(_, event)| !event.is_complete());
        }
        readers.push((handle, stream.record_event(None)?));
        Ok(())
    }

    /// As [`Readers::note_or`]; what goes wrong is told by the context's next call, as cudarc does.
    pub(super) fn note(&self, stream: &CudaStream) {
        stream.context().record_err(self.note_or(stream));
    }

    /// Makes `stream` wait for all of them.
    fn join(&self, stream: &CudaStream) {
        for (_, event) in self.lock().drain(..) {
            stream.context().record_err(stream.wait(&event));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(usize, CudaEvent)>> {
        // Nothing that can panic leaves it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A slice that was written, where it is not known when: cudarc orders that.
impl<T> From<CudaSlice<T>> for Shared<T> {
    fn from(slice: CudaSlice<T>) -> Self {
        Self::of(slice.into(), Written::unknown())
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} shared elements", self.elements())
    }
}
