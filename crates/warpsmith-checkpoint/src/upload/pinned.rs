//! Two buffers of pinned memory.

use std::sync::Arc;
use std::thread;

use cudarc::driver::sys::CU_MEMHOSTALLOC_PORTABLE;
use cudarc::driver::{CudaSlice, CudaStream, HostSlice, PinnedHostSlice, SyncOnDrop};
use warpsmith::internal::{Raise, refused};
use warpsmith::{Error, Result};

/// Bytes that are worth a thread.
const PART: usize = 1 << 20;

/// One is filled while the other is copied.
pub(crate) struct Pinned {
    buffers: [PinnedHostSlice<u8>; 2],
    next: usize,
    pub(crate) threads: usize,
}

impl Pinned {
    pub(crate) fn new(stream: &Arc<CudaStream>, bytes: usize) -> Result<Self> {
        if bytes == 0 {
            return Err(Error::operand("buffers of 0 bytes: at least 1 is needed"));
        }
        let doing = |error| refused(format!("allocating {bytes} bytes of pinned memory"), error);
        // Not write-combined: what is not filled by whole lines would be slow.
        let flags = CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: bytes of any value are bytes; what is read of them has been written.
        let buffer = || unsafe { stream.context().alloc_pinned_with_flags::<u8>(bytes, flags) }.map_err(doing);
        Ok(Self { buffers: [buffer()?, buffer()?], next: 0, threads: 1 })
    }

    /// Device memory of so many bytes with what `write` pushes: just as many. `tell` hears of each copy.
    pub(crate) fn send(
        &mut self,
        stream: &Arc<CudaStream>,
        bytes: usize,
        tell: &mut dyn FnMut(u64),
        write: impl FnOnce(&mut Sink<'_>) -> Result<()>,
    ) -> Result<CudaSlice<u8>> {
        let doing = |error| refused(format!("allocating {bytes} bytes"), error);
        // SAFETY: all of it is written below, or it is freed.
        let target = unsafe { stream.alloc::<u8>(bytes) }.map_err(doing)?;
        let mut sink = Sink { pinned: self, stream, target, tell, copied: 0, filled: 0 };
        write(&mut sink)?;
        sink.end()
    }
}

/// Takes the bytes of one piece of device memory.
pub(crate) struct Sink<'a> {
    pinned: &'a mut Pinned,
    stream: &'a Arc<CudaStream>,
    target: CudaSlice<u8>,
    tell: &'a mut dyn FnMut(u64),
    copied: usize,
    /// Of the buffer that is being filled.
    filled: usize,
}

impl Sink<'_> {
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let threads = self.pinned.threads;
            let buffer = &mut self.pinned.buffers[self.pinned.next];
            let buffer = buffer.as_mut_slice().map_err(|error| refused("waiting for a copy", error))?;
            let count = bytes.len().min(buffer.len() - self.filled);
            let (now, later) = bytes.split_at(count);
            copied(&mut buffer[self.filled..][..count], now, threads);
            self.filled += count;
            bytes = later;
            if self.filled == buffer.len() {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Copies what has been filled.
    fn flush(&mut self) -> Result<()> {
        let (from, to) = (self.copied, self.copied + self.filled);
        if to > self.target.len() {
            return Err(Error::internal(format!("{to} bytes for a piece of {}", self.target.len())));
        }
        if from < to {
            let part = Part(&self.pinned.buffers[self.pinned.next], self.filled);
            let copy = self.stream.memcpy_htod(&part, &mut self.target.slice_mut(from..to));
            copy.map_err(|error| refused(format!("copying {} bytes", self.filled), error))?;
            (self.tell)(self.filled as u64);
            self.pinned.next = 1 - self.pinned.next;
            (self.copied, self.filled) = (to, 0);
        }
        Ok(())
    }

    fn end(mut self) -> Result<CudaSlice<u8>> {
        self.flush()?;
        match self.copied == self.target.len() {
            true => Ok(self.target),
            false => Err(Error::internal(format!("{} bytes for a piece of {}", self.copied, self.target.len()))),
        }
    }
}

/// Copies by several threads, each a part that is worth one.
fn copied(to: &mut [u8], from: &[u8], threads: usize) {
    let part = from.len().div_ceil(threads.max(1)).max(PART);
    let mut parts = to.chunks_mut(part).zip(from.chunks(part));
    let own = parts.next();
    thread::scope(|scope| {
        for (to, from) in parts {
            scope.spawn(|| to.copy_from_slice(from));
        }
        if let Some((to, from)) = own {
            to.copy_from_slice(from);
        }
    });
}

/// The first bytes of a buffer.
struct Part<'a>(&'a PinnedHostSlice<u8>, usize);

impl HostSlice<u8> for Part<'_> {
    fn len(&self) -> usize {
        self.1
    }

    unsafe fn stream_synced_slice<'s>(&'s self, stream: &'s CudaStream) -> (&'s [u8], SyncOnDrop<'s>) {
        // SAFETY: the caller's promise.
        let (all, synced) = unsafe { self.0.stream_synced_slice(stream) };
        (&all[..self.1], synced)
    }

    unsafe fn stream_synced_mut_slice<'s>(&'s mut self, _: &'s CudaStream) -> (&'s mut [u8], SyncOnDrop<'s>) {
        // Nothing copies into it.
        (&mut [], SyncOnDrop::Sync(None))
    }
}
