//! Buffers of pinned memory, which take turns: some are filled while others are copied.

use std::collections::VecDeque;
use std::num::NonZero;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::sys::CU_MEMHOSTALLOC_PORTABLE;
use cudarc::driver::{CudaStream, CudaViewMut, HostSlice, PinnedHostSlice, SyncOnDrop};
use warpsmith::internal::{Raise, refused};
use warpsmith::{Error, Result};

use super::fill::{Fillers, Job, SHARE};
use crate::weight::Source;

/// Buffers of a ring at most, and the bytes that one has at least where there are several: a copy of that many takes longer than
/// to ask for it.
const BUFFERS: usize = 16;
const BUFFER: usize = 1 << 20;
/// Threads beyond which buffers are not filled faster.
const THREADS: usize = 16;

/// Buffers, and threads that fill them.
pub(crate) struct Ring {
    buffers: Vec<PinnedHostSlice<u8>>,
    /// The one that is filled next: that which was filled first.
    next: usize,
    fillers: Fillers,
    pub(crate) threads: usize,
    spent: Spent,
}

/// What the calling thread did while others filled and copied.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    /// Until buffers were full; it helps.
    pub(super) filling: Duration,
    /// Until buffers that were filled before were copied.
    pub(super) waiting: Duration,
    /// Asking for copies.
    pub(super) copying: Duration,
}

impl Ring {
    /// Of so many bytes in all.
    pub(crate) fn new(stream: &Arc<CudaStream>, bytes: usize) -> Result<Self> {
        if bytes < 2 {
            return Err(Error::operand(format!("buffers of {bytes} bytes in all: at least 2 are needed")));
        }
        let count = (bytes / BUFFER).clamp(2, BUFFERS);
        let doing = |error| refused(format!("allocating {bytes} bytes of pinned memory"), error);
        // Not write-combined: what is not filled by whole lines would be slow, and so would be to look at it.
        let flags = CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: bytes of any value are bytes; what is read of them has been written.
        let buffer = |_| unsafe { stream.context().alloc_pinned_with_flags::<u8>(bytes / count, flags) }.map_err(doing);
        let buffers = (0..count).map(buffer).collect::<Result<_>>()?;
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(THREADS);
        Ok(Self { buffers, next: 0, fillers: Fillers::new(count), threads, spent: Spent::default() })
    }

    /// Puts copies into a stream, so that each piece of device memory gets the bytes of its sources, one behind the other. `tell`
    /// hears of each copy. All sources have been read when this returns.
    pub(crate) fn send<'d>(
        &mut self,
        stream: &Arc<CudaStream>,
        to: &mut [CudaViewMut<'_, u8>],
        from: &[Vec<Source<'d>>],
        tell: &mut dyn FnMut(u64),
    ) -> Result<()> {
        for (to, from) in to.iter().zip(from) {
            let bytes: usize = from.iter().map(Source::bytes).sum();
            if bytes > to.len() {
                return Err(Error::internal(format!("{bytes} bytes for a piece of {}", to.len())));
            }
        }
        let room = self.buffers[0].len();
        let mut sending = Sending { ring: self, stream, to, tell, full: VecDeque::new() };
        let mut part = Part::default();
        for (target, sources) in from.iter().enumerate() {
            let mut behind = 0;
            for source in sources {
                let (mut at, all) = (0, source.bytes());
                while at < all {
                    let bytes = (all - at).min(room - part.bytes).min(SHARE);
                    part.add(Piece { source: *source, at, bytes, target, behind });
                    (at, behind) = (at + bytes, behind + bytes);
                    if part.bytes == room {
                        sending.fill(std::mem::take(&mut part))?;
                    }
                }
            }
        }
        if part.bytes > 0 {
            sending.fill(part)?;
        }
        while !sending.full.is_empty() {
            sending.copy_first()?;
        }
        Ok(())
    }

    /// So far; and what all threads together have worked.
    pub(super) fn spent(&self) -> (Spent, Duration) {
        (self.spent, self.fillers.busy())
    }
}

/// Some bytes of a source, and where they come to.
struct Piece<'d> {
    source: Source<'d>,
    at: usize,
    bytes: usize,
    target: usize,
    behind: usize,
}

/// What one buffer is filled with, and copied to.
#[derive(Default)]
struct Part<'d> {
    pieces: Vec<Piece<'d>>,
    copies: Vec<Stretch>,
    bytes: usize,
}

/// Bytes of a buffer, which follow those of the copy before.
struct Stretch {
    target: usize,
    behind: usize,
    bytes: usize,
}

impl<'d> Part<'d> {
    fn add(&mut self, piece: Piece<'d>) {
        self.bytes += piece.bytes;
        match self.copies.last_mut() {
            Some(last) if last.target == piece.target => last.bytes += piece.bytes,
            _ => self.copies.push(Stretch { target: piece.target, behind: piece.behind, bytes: piece.bytes }),
        }
        self.pieces.push(piece);
    }
}

/// Buffers that are being filled. However it ends, nobody fills them any more.
struct Sending<'a, 't> {
    ring: &'a mut Ring,
    stream: &'a Arc<CudaStream>,
    to: &'a mut [CudaViewMut<'t, u8>],
    tell: &'a mut dyn FnMut(u64),
    /// The first was begun first.
    full: VecDeque<(usize, Vec<Stretch>)>,
}

impl Sending<'_, '_> {
    /// Begins to fill the next buffer.
    fn fill(&mut self, part: Part<'_>) -> Result<()> {
        if self.full.len() == self.ring.buffers.len() {
            self.copy_first()?;
        }
        let Ring { buffers, next, fillers, threads, spent } = &mut *self.ring;
        let buffer = timed(&mut spent.waiting, || buffers[*next].as_mut_slice());
        let mut rest = buffer.map_err(|error| refused("waiting for a copy", error))?;
        let jobs = part.pieces.into_iter().map(|piece| {
            let (to, behind) = std::mem::take(&mut rest).split_at_mut(piece.bytes);
            rest = behind;
            Job { from: piece.source, at: piece.at, to: to.as_mut_ptr(), bytes: piece.bytes }
        });
        // SAFETY: sources live longer than `self`, which waits for all that is begun when it is dropped; each job has bytes of its
        // own of a buffer that has been copied, and that is not looked at before it is full.
        unsafe { fillers.add(*next, jobs, *threads) };
        self.full.push_back((*next, part.copies));
        *next = (*next + 1) % buffers.len();
        while self.full.front().is_some_and(|(first, _)| self.ring.fillers.is_done(*first)) {
            self.copy_first()?;
        }
        Ok(())
    }

    /// Copies what has been filled first, once it is full.
    fn copy_first(&mut self) -> Result<()> {
        let Some((first, copies)) = self.full.pop_front() else { return Ok(()) };
        let Ring { buffers, fillers, spent, .. } = &mut *self.ring;
        if !timed(&mut spent.filling, || fillers.wait(first)) {
            return Err(Error::internal("a buffer that cannot be filled"));
        }
        let mut at = 0;
        for Stretch { target, behind, bytes } in copies {
            let from = Range(&buffers[first], at, bytes);
            let copy = timed(&mut spent.copying, || {
                self.stream.memcpy_htod(&from, &mut self.to[target].slice_mut(behind..behind + bytes))
            });
            copy.map_err(|error| refused(format!("copying {bytes} bytes"), error))?;
            (self.tell)(bytes as u64);
            at += bytes;
        }
        Ok(())
    }
}

impl Drop for Sending<'_, '_> {
    fn drop(&mut self) {
        self.ring.fillers.clear();
    }
}

/// Some bytes of a buffer: where they begin, and how many.
struct Range<'a>(&'a PinnedHostSlice<u8>, usize, usize);

impl HostSlice<u8> for Range<'_> {
    fn len(&self) -> usize {
        self.2
    }

    unsafe fn stream_synced_slice<'s>(&'s self, stream: &'s CudaStream) -> (&'s [u8], SyncOnDrop<'s>) {
        // SAFETY: the caller's promise.
        let (all, synced) = unsafe { self.0.stream_synced_slice(stream) };
        (&all[self.1..][..self.2], synced)
    }

    unsafe fn stream_synced_mut_slice<'s>(&'s mut self, _: &'s CudaStream) -> (&'s mut [u8], SyncOnDrop<'s>) {
        // Nothing copies into it.
        (&mut [], SyncOnDrop::Sync(None))
    }
}

/// Adds the time that it takes.
pub(super) fn timed<T>(all: &mut Duration, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let made = work();
    *all += start.elapsed();
    made
}
