//! A problem's way to its kernels: its intervals of M, each with a place for a loaded kernel.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::background::Slot;
use super::call::Served;
use super::recorder::Seen;
use crate::pick::{Choice, Interval, Schedule};
use crate::spec::Spec;

/// What calls for one problem look at. All of it but the slots is there from the beginning.
#[derive(Debug)]
pub(super) struct ProblemKernels<K> {
    schedule: Arc<Schedule>,
    /// One an interval; an interval's kernel may be another's, too.
    slots: Box<[Slot<K>]>,
    seen: Arc<Seen>,
    used: AtomicU64,
    pinned: AtomicBool,
}

impl<K> ProblemKernels<K> {
    pub fn new(schedule: Arc<Schedule>, seen: Arc<Seen>) -> Self {
        let slots = schedule.intervals().iter().map(|_| Slot::new()).collect();
        Self { schedule, slots, seen, used: AtomicU64::new(0), pinned: AtomicBool::new(false) }
    }

    /// The index of the interval of `m` rows, if there is a choice for so many.
    pub fn index(&self, m: u32) -> Option<usize> {
        (1..=self.schedule.last()).contains(&m).then(|| self.schedule.index(m))
    }

    /// What is chosen for an interval.
    pub fn choice(&self, index: usize) -> &Choice {
        &self.schedule.intervals()[index].choice
    }

    /// The interval's kernel, if it is loaded. `now` is when it was used.
    pub fn get(&self, index: usize, now: u64) -> Option<Served<K>> {
        self.use_now(now);
        Some(Served::resident(self.choice(index), self.slots[index].get()?))
    }

    pub fn has(&self, index: usize) -> bool {
        self.slots[index].get().is_some()
    }

    /// Puts a kernel into every interval that it is chosen for; whether one of them had none.
    pub fn publish(&self, spec: &Spec, kernel: &Arc<K>) -> bool {
        let intervals = self.schedule.intervals().iter().zip(&self.slots);
        let own = intervals.filter(|(interval, _)| interval.choice.spec() == spec);
        own.fold(false, |published, (_, slot)| slot.publish(kernel) || published)
    }

    /// What serves `m` rows while the kernel of interval `index` is not there.
    pub fn fallback(&self, index: usize, m: u32) -> Option<Served<K>> {
        let found = fallback(&self.schedule, index, m, |other| self.has(other))?;
        let served = Served::resident(self.choice(found), self.slots[found].get()?);
        Some(Served { wanted: Some(Box::new(*self.choice(index))), ..served })
    }

    /// Loaded kernels, each once.
    pub fn kernels(&self) -> impl Iterator<Item = &Arc<K>> {
        let spec = |index: usize| self.choice(index).spec();
        let loaded = (0..self.slots.len()).filter_map(|index| Some((index, self.slots[index].get()?)));
        loaded
            .filter(move |(index, _)| (0..*index).all(|before| spec(before) != spec(*index)))
            .map(|(_, kernel)| kernel)
    }

    /// Whether none of its kernels is loaded.
    pub fn is_empty(&self) -> bool {
        self.slots.iter().all(|slot| slot.get().is_none())
    }

    #[cfg(test)]
    pub fn schedule(&self) -> &Arc<Schedule> {
        &self.schedule
    }

    pub fn intervals(&self) -> &[Interval] {
        self.schedule.intervals()
    }

    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// Says that it is used.
    pub fn use_now(&self, now: u64) {
        // Written only where it changes something: readers share the cache line.
        if self.used.load(Relaxed) != now {
            self.used.store(now, Relaxed);
        }
    }

    /// When it was last used.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// Keeps it for as long as the engine lives.
    pub fn pin(&self) {
        self.pinned.store(true, Relaxed);
    }

    pub fn is_pinned(&self) -> bool {
        self.pinned.load(Relaxed)
    }
}

/// The interval whose kernel serves `m` rows in place of that of interval `index`: of those that are there and have room
/// in a grid the nearest, of two equally near ones that for more rows. All kernels of a schedule are of one problem and, if
/// the problem is pinned to one, of one numerics class.
pub(super) fn fallback(schedule: &Schedule, index: usize, m: u32, is_there: impl Fn(usize) -> bool) -> Option<usize> {
    let intervals = schedule.intervals();
    let serves = |other: &usize| *other != index && is_there(*other) && intervals[*other].choice.spec().fits_grid(m);
    (0..intervals.len()).rev().filter(serves).min_by_key(|other| other.abs_diff(index))
}
