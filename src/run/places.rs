//! Where the blocks of a launch of [`ExpertsKernel`](super::experts::ExpertsKernel) count, and give each other rows of h.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::CudaStream;

use super::refused;
use super::shared::Shared;
use crate::error::{Error, Result};
use crate::simt::Experts;

/// Places of h that are told apart: many, as some allocate one for each launch.
const PLACES: usize = 1024;
/// Counters of each.
const APART: usize = 4;
/// Places that have cells.
const WITH_CELLS: usize = 4;

/// Memory of a kernel, or of several whose rows of h need as much. Launches at a time must not have the same of it: where they would
/// write h tells them apart, as nobody may give that to two at a time, by whatever kernels.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    counters: Shared<i32>,
    /// Bytes of the cells of a place.
    cells: usize,
    /// The address of h that each is for, or 0.
    held: Arc<[AtomicU64; PLACES]>,
}

/// What a launch has: where its counters lie, and its cells, if it has some, in bytes from the first counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) counters: u64,
    pub(super) cells: Option<u64>,
}

impl Places {
    /// For the rows of a kernel; `stream` makes them.
    pub(crate) fn new(stream: &Arc<CudaStream>, experts: &Experts) -> Result<Self> {
        let cells = experts.cell_bytes()?;
        let counters = stream.alloc_zeros::<i32>(first_word(WITH_CELLS, cells));
        let counters = counters.map_err(|error| refused(format!("making the counters of {experts}"), error))?;
        let held = Arc::new([const { AtomicU64::new(0) }; PLACES]);
        Ok(Self { counters: Shared::written_in(stream, counters)?, cells, held })
    }

    /// Of a place: kernels that need as much may have these together.
    pub(crate) fn cell_bytes(&self) -> usize {
        self.cells
    }

    /// What launches with h at this address have; none if all is others'.
    pub(super) fn of(&self, h: u64) -> Option<Place> {
        // From where its address says on: workspaces are 256 bytes apart at least.
        let first = WITH_CELLS + ((h / 256).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % (PLACES - WITH_CELLS);
        let at = (0..WITH_CELLS).chain(first..PLACES).chain(WITH_CELLS..first).find(|at| {
            match self.held[*at].load(Ordering::Relaxed) {
                0 => match self.held[*at].compare_exchange(0, h, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => true,
                    Err(other) => other == h,
                },
                other => other == h,
            }
        })?;
        let cells = (at < WITH_CELLS).then(|| 4 * first_word(at, self.cells) as u64);
        Some(Place { counters: (4 * APART * at) as u64, cells })
    }

    pub(super) fn counters(&self) -> &Shared<i32> {
        &self.counters
    }

    /// Of all memory, 32 bits each.
    pub(super) fn words(&self) -> usize {
        first_word(WITH_CELLS, self.cells)
    }

    /// What the first place has once the stream has come so far: its counters, and of its cells each half.
    pub(crate) fn first(&self, stream: &Arc<CudaStream>) -> Result<(Vec<i32>, [Vec<i32>; 2])> {
        let all = self.counters.slice().ok_or_else(|| Error::internal("counters that are not the kernel's own"))?;
        let (first, half) = (first_word(0, self.cells), self.cells / 8);
        let of = |words| stream.clone_dtoh(&all.slice(words)).map_err(|error| refused("reading counters", error));
        Ok((of(0..APART)?, [of(first..first + half)?, of(first + half..first + 2 * half)?]))
    }
}

/// Where the cells of a place begin, of so many bytes each: behind all counters.
const fn first_word(place: usize, cells: usize) -> usize {
    PLACES * APART + place * cells / 4
}
