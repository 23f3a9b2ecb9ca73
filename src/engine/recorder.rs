//! What traffic asks for, as a manifest to be.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lru::LruCache;

use super::manifest::Manifest;
use super::rows::Rows;
use crate::simt::Simt;
use crate::spec::Problem;

/// Problems, each with the fewest and the most rows that it was asked for, [`Recorder::PROBLEMS_MAX`] at most: beyond that
/// the one that was not asked for the longest is forgotten. Shared between threads by reference.
///
/// ```
/// use warpsmith::engine::Recorder;
/// use warpsmith::spec::Problem;
/// let recorder = Recorder::new();
/// let problem = Problem::gemm().n(4096).k(4096);
/// [3, 64, 17].map(|m| recorder.note(&problem, m));
/// assert_eq!(recorder.manifest().rows(&problem).map(ToString::to_string), Some("3..=64".to_owned()));
/// ```
#[derive(Debug)]
pub struct Recorder {
    /// All legal, without a stated range of M; those that were asked for last come first.
    problems: Mutex<LruCache<Problem, Arc<Seen>>>,
    /// Routers and combiners, which are asked for once, when a layer is made.
    beside: Mutex<Manifest>,
    forgotten: AtomicU64,
}

/// The rows that one problem was asked for.
#[derive(Debug)]
pub(crate) struct Seen {
    fewest: AtomicU32,
    most: AtomicU32,
}

impl Default for Recorder {
    fn default() -> Self {
        // Unbounded by itself: what is in use is not to go.
        Self { problems: Mutex::new(LruCache::unbounded()), beside: Mutex::default(), forgotten: AtomicU64::new(0) }
    }
}

impl Recorder {
    /// Problems at most, beside those that plans and loaded kernels are for; each takes some hundred bytes.
    pub const PROBLEMS_MAX: usize = 4096;

    /// One that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes that a problem was asked for. What [`Problem::check_for`] refuses is left out. An [`Engine`](super::Engine)
    /// does this by itself; it is for those who launch what they have got before.
    pub fn note(&self, problem: &Problem, m: u32) {
        if problem.check_for(m).is_ok() {
            self.seen(problem).note(m);
        }
    }

    /// All that was noted. The rows of a problem are one range from the fewest to the most: what lies between is likely to
    /// come, too.
    #[must_use]
    pub fn manifest(&self) -> Manifest {
        let rows = |seen: &Seen| Rows::new(seen.fewest.load(Relaxed)..=seen.most.load(Relaxed));
        let problems = self.lock();
        // Of some there is no call yet.
        let known = problems.iter().filter_map(|(problem, seen)| Some((problem, rows(seen).ok()?)));
        let beside = self.beside.lock().unwrap_or_else(PoisonError::into_inner).clone();
        known.fold(beside, |manifest, (problem, rows)| manifest.with(problem, &rows))
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.lock().iter().for_each(|(_, seen)| seen.clear());
        *self.beside.lock().unwrap_or_else(PoisonError::into_inner) = Manifest::new();
    }

    /// Problems that were forgotten, since too many others were asked for after them.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten.load(Relaxed)
    }

    /// Notes that a legal router, combiner or quantiser was asked for; of very many the first.
    pub(crate) fn note_simt(&self, simt: &Simt) {
        let mut beside = self.beside.lock().unwrap_or_else(PoisonError::into_inner);
        if beside.simts().count() < Self::PROBLEMS_MAX {
            *beside = std::mem::take(&mut *beside).with_simt(simt);
        }
    }

    /// Where the rows of a legal problem are noted, to be kept by those who do it often.
    pub(crate) fn seen(&self, problem: &Problem) -> Arc<Seen> {
        let mut problems = self.lock();
        let seen = Arc::clone(problems.get_or_insert(problem.for_pick(), Arc::default));
        if problems.len() > Self::PROBLEMS_MAX {
            self.forget_one(&mut problems);
        }
        seen
    }

    /// Says that a problem, whose rows were noted elsewhere, was asked for until now.
    pub(crate) fn asked_until_now(&self, problem: &Problem) {
        self.lock().promote(&problem.for_pick());
    }

    fn forget_one(&self, problems: &mut LruCache<Problem, Arc<Seen>>) {
        // What somebody else holds is in use: by a plan, or by an engine for the problem, of which there are so many only.
        let oldest = problems.iter().rev().find(|(_, seen)| Arc::strong_count(seen) == 1);
        let Some((problem, seen)) = oldest.map(|(problem, seen)| (*problem, Arc::clone(seen))) else { return };
        problems.pop(&problem);
        if seen.most().is_some() && self.forgotten.fetch_add(1, Relaxed) == 0 {
            let most = Self::PROBLEMS_MAX;
            tracing::warn!(%problem, "more than {most} problems are asked for: the record forgets the oldest");
        }
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<Problem, Arc<Seen>>> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    /// Notes a number of rows; those that no kernel takes are left out.
    #[inline]
    pub fn note(&self, m: u32) {
        if !(1..=Problem::M_MAX).contains(&m) {
            return;
        }
        // Written only where it changes something: readers share the cache line.
        if m < self.fewest.load(Relaxed) {
            self.fewest.fetch_min(m, Relaxed);
        }
        if m > self.most.load(Relaxed) {
            self.most.fetch_max(m, Relaxed);
        }
    }

    /// The most rows, if any were noted.
    pub fn most(&self) -> Option<u32> {
        Some(self.most.load(Relaxed)).filter(|m| *m > 0)
    }

    fn clear(&self) {
        self.fewest.store(u32::MAX, Relaxed);
        self.most.store(0, Relaxed);
    }
}

impl Default for Seen {
    fn default() -> Self {
        Self { fewest: AtomicU32::new(u32::MAX), most: AtomicU32::new(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_legal_is_not_noted() {
        let (recorder, legal) = (Recorder::new(), Problem::gemm().n(64).k(64));
        for problem in [legal.n(17), legal.k(0), legal.grouped(0), legal.grouped(u32::MAX), legal.m_up_to(0)] {
            recorder.note(&problem, 7);
        }
        [0, Problem::M_MAX + 1].iter().for_each(|m| recorder.note(&legal, *m));
        assert_eq!(recorder.manifest(), Manifest::new());
        assert!(recorder.lock().is_empty());
        recorder.note(&legal, 7);
        assert_eq!(Manifest::parse(&recorder.manifest().to_string()).unwrap(), recorder.manifest());
    }

    #[test]
    fn the_problem_that_was_not_asked_for_the_longest_is_forgotten() {
        let (recorder, most) = (Recorder::new(), Recorder::PROBLEMS_MAX as u32);
        let problem = |at: u32| Problem::gemm().n(16 * (at % 1000 + 1)).k(64 * (at / 1000 + 1));
        let held = recorder.seen(&problem(0));
        (0..most).for_each(|at| recorder.note(&problem(at), at + 1));
        recorder.note(&problem(1), 5000);
        assert_eq!((recorder.manifest().problems().count(), recorder.forgotten()), (most as usize, 0));
        // The first is held, the second was asked for since, the third goes, and so on.
        (most..most + 100).for_each(|at| recorder.note(&problem(at), at));
        let manifest = recorder.manifest();
        assert_eq!((manifest.problems().count(), recorder.forgotten()), (most as usize, 100));
        let is_known = |at: u32| manifest.rows(&problem(at)).is_some();
        assert!(is_known(0) && is_known(1) && !(2..102).any(is_known) && (102..most + 100).all(is_known));
        assert_eq!(manifest.rows(&problem(1)).unwrap().to_string(), "2..=5000");
        // What is held is noted for as long as it is; then it is one of the others.
        held.note(77);
        assert_eq!(recorder.manifest().rows(&problem(0)).unwrap().to_string(), "1..=77");
        drop(held);
        recorder.asked_until_now(&problem(102));
        recorder.note(&problem(most + 100), 1);
        recorder.note(&problem(most + 101), 1);
        let manifest = recorder.manifest();
        let is_known = |at: u32| manifest.rows(&problem(at)).is_some();
        assert!(!is_known(0) && is_known(102) && !is_known(103) && is_known(104));
    }

    #[test]
    fn the_fewest_and_the_most_of_each_problem() {
        let (recorder, problem) = (Recorder::new(), Problem::gemm().n(64).k(64));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (recorder, problem) = (&recorder, &problem);
                scope.spawn(move || (5..500).for_each(|m| recorder.note(&problem.m_up_to(m), 4 * m + thread)));
            }
        });
        [0, u32::MAX].iter().for_each(|m| recorder.note(&problem, *m));
        recorder.seen(&Problem::gemm().n(128).k(64));
        let manifest = recorder.manifest();
        assert_eq!(manifest, Manifest::new().with(&problem, &Rows::new(20..=1999).unwrap()));
        recorder.clear();
        assert_eq!(recorder.manifest(), Manifest::new());
        recorder.note(&problem, 9);
        assert_eq!(recorder.manifest().rows(&problem).unwrap().to_string(), "9");
    }
}
