//! What traffic asks for, as a manifest to be.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::manifest::Manifest;
use super::rows::Rows;
use crate::spec::Problem;

/// Problems, each with the fewest and the most rows that it was asked for. To note what is known already takes two loads;
/// shared between threads by reference.
///
/// ```
/// use warpsmith::engine::Recorder;
/// use warpsmith::spec::Problem;
/// let recorder = Recorder::new();
/// let problem = Problem::gemm().n(4096).k(4096);
/// [3, 64, 17].map(|m| recorder.note(&problem, m));
/// assert_eq!(recorder.manifest().rows(&problem).map(ToString::to_string), Some("3..=64".to_owned()));
/// ```
#[derive(Debug, Default)]
pub struct Recorder {
    problems: Mutex<HashMap<Problem, Arc<Seen>>>,
}

/// The rows that one problem was asked for.
#[derive(Debug)]
pub(crate) struct Seen {
    fewest: AtomicU32,
    most: AtomicU32,
}

impl Recorder {
    /// One that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes that a problem was asked for. An [`Engine`](super::Engine) does this by itself; it is for those who launch
    /// what they have got before.
    pub fn note(&self, problem: &Problem, m: u32) {
        self.seen(problem).note(m);
    }

    /// All that was noted. The rows of a problem are one range from the fewest to the most: what lies between is likely to
    /// come, too.
    #[must_use]
    pub fn manifest(&self) -> Manifest {
        let rows = |seen: &Seen| Rows::new(seen.fewest.load(Relaxed)..=seen.most.load(Relaxed));
        let problems = self.lock();
        // Of some there is no call yet, or none whose rows a kernel takes.
        let known = problems.iter().filter_map(|(problem, seen)| Some((problem, rows(seen).ok()?)));
        known.fold(Manifest::new(), |manifest, (problem, rows)| manifest.with(problem, &rows))
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.lock().values().for_each(|seen| seen.clear());
    }

    /// Where the rows of a problem are noted, to be kept by those who do it often.
    pub(crate) fn seen(&self, problem: &Problem) -> Arc<Seen> {
        Arc::clone(self.lock().entry(problem.for_kernel()).or_default())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Problem, Arc<Seen>>> {
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
