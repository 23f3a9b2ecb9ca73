//! Two buffers of pinned memory.

use std::mem;
use std::num::NonZero;
use std::sync::Arc;
use std::thread;

use cudarc::driver::sys::CU_MEMHOSTALLOC_PORTABLE;
use cudarc::driver::{CudaSlice, CudaStream, HostSlice, PinnedHostSlice, SyncOnDrop};
use warpsmith::internal::{Raise, refused};
use warpsmith::{Error, Result};

use crate::weight::Nan;

/// Bytes that are worth a thread.
const SHARE: usize = 1 << 20;
/// Threads beyond which a buffer is not filled faster.
const THREADS: usize = 8;

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
        // Not write-combined: what is not filled by whole lines would be slow, and so would be to look at it.
        let flags = CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: bytes of any value are bytes; what is read of them has been written.
        let buffer = || unsafe { stream.context().alloc_pinned_with_flags::<u8>(bytes, flags) }.map_err(doing);
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(THREADS);
        Ok(Self { buffers: [buffer()?, buffer()?], next: 0, threads })
    }

    /// Device memory of so many bytes with what `write` pushes: just as many. `tell` hears of each copy.
    pub(crate) fn send<'d>(
        &mut self,
        stream: &Arc<CudaStream>,
        bytes: usize,
        tell: &mut dyn FnMut(u64),
        write: impl FnOnce(&mut Sink<'_, 'd>) -> Result<()>,
    ) -> Result<CudaSlice<u8>> {
        let doing = |error| refused(format!("allocating {bytes} bytes"), error);
        // SAFETY: all of it is written below, or it is freed.
        let target = unsafe { stream.alloc::<u8>(bytes) }.map_err(doing)?;
        let mut sink = Sink { pinned: self, stream, target, tell, copied: 0, filled: 0, lasting: Vec::new() };
        write(&mut sink)?;
        sink.end()
    }
}

/// Takes the bytes of one piece of device memory.
pub(crate) struct Sink<'a, 'd> {
    pinned: &'a mut Pinned,
    stream: &'a Arc<CudaStream>,
    target: CudaSlice<u8>,
    tell: &'a mut dyn FnMut(u64),
    copied: usize,
    /// Of the buffer that is being filled, with what it gets of `lasting`.
    filled: usize,
    lasting: Vec<Piece<'d>>,
}

/// Bytes that last until their buffer is copied, their place in that, and what is refused among them.
#[derive(Clone, Copy)]
struct Piece<'d> {
    at: usize,
    bytes: &'d [u8],
    refused: Option<Nan>,
}

impl<'d> Sink<'_, 'd> {
    /// Bytes that may change once this returns.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let (at, room) = (self.filled, self.room());
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.buffer()?[at..][..now.len()].copy_from_slice(now);
            self.fill(now.len())?;
            bytes = later;
        }
        Ok(())
    }

    /// Bytes that last: threads share them out when the buffer is full, and refuse it if one is NaN.
    pub(crate) fn push_lasting(&mut self, mut bytes: &'d [u8], refused: Option<Nan>) -> Result<()> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(self.room()));
            self.lasting.push(Piece { at: self.filled, bytes: now, refused });
            self.fill(now.len())?;
            bytes = later;
        }
        Ok(())
    }

    fn room(&self) -> usize {
        self.pinned.buffers[self.pinned.next].len() - self.filled
    }

    /// Once it has been copied.
    fn buffer(&mut self) -> Result<&mut [u8]> {
        let buffer = &mut self.pinned.buffers[self.pinned.next];
        buffer.as_mut_slice().map_err(|error| refused("waiting for a copy", error))
    }

    fn fill(&mut self, bytes: usize) -> Result<()> {
        self.filled += bytes;
        if self.room() == 0 { self.flush() } else { Ok(()) }
    }

    /// Copies what has been filled.
    fn flush(&mut self) -> Result<()> {
        let (from, to) = (self.copied, self.copied + self.filled);
        if to > self.target.len() {
            return Err(Error::internal(format!("{to} bytes for a piece of {}", self.target.len())));
        }
        if from < to {
            let (threads, lasting) = (self.pinned.threads, mem::take(&mut self.lasting));
            if !copied(self.buffer()?, &lasting, threads) {
                return Err(Error::data("a scale is NaN"));
            }
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

/// Copies pieces to their places in a buffer, by several threads with a share each that is worth one. Whether nothing that is
/// refused is among them.
fn copied(mut to: &mut [u8], pieces: &[Piece<'_>], threads: usize) -> bool {
    let bytes: usize = pieces.iter().map(|piece| piece.bytes.len()).sum();
    let share = bytes.div_ceil(threads.max(1)).max(SHARE);
    let (mut shares, mut own, mut room, mut at) = (Vec::new(), Vec::new(), share, 0);
    for piece in pieces {
        to = &mut mem::take(&mut to)[piece.at - at..];
        at = piece.at + piece.bytes.len();
        let mut from = piece.bytes;
        while !from.is_empty() {
            if room == 0 {
                shares.push(mem::take(&mut own));
                room = share;
            }
            let (now, later) = from.split_at(from.len().min(room));
            let (here, behind) = mem::take(&mut to).split_at_mut(now.len());
            own.push((here, now, piece.refused));
            (from, to, room) = (later, behind, room - now.len());
        }
    }
    let copy = |share: Vec<(&mut [u8], &[u8], Option<Nan>)>| {
        share.into_iter().fold(true, |is_right, (to, from, refused)| {
            to.copy_from_slice(from);
            is_right && !refused.is_some_and(|nan| nan.is_in(to))
        })
    };
    thread::scope(|scope| {
        let others: Vec<_> = shares.into_iter().map(|share| scope.spawn(move || copy(share))).collect();
        let is_right = copy(own);
        others.into_iter().fold(is_right, |is_right, other| other.join().unwrap_or(false) && is_right)
    })
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
