//! Every problem that was asked for, with its kernels: read by every call without a lock, replaced as a whole.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};
use foldhash::fast::RandomState;

use super::problem_kernels::ProblemKernels;
use crate::spec::Problem;

type Table<K> = HashMap<Problem, Arc<ProblemKernels<K>>, RandomState>;

/// The problems that were asked for, with their kernels. When too many kernels are loaded, the problem that was asked for
/// least recently loses its own; who holds one keeps it. Of the problems without any, which were refused or failed, a bounded
/// number is remembered.
#[derive(Debug)]
pub(super) struct ProblemIndex<K> {
    table: ArcSwap<Table<K>>,
    /// Held while the table is replaced.
    writing: Mutex<()>,
    /// Kernels published and problems added so far: the clock by which a problem was used last.
    now: AtomicU64,
    evictions: AtomicU64,
    most: usize,
    most_empty: usize,
}

impl<K> ProblemIndex<K> {
    /// For at most `most` kernels of problems that are not pinned, and at most `most_empty` problems without any.
    pub fn new(most: usize, most_empty: usize) -> Self {
        let (now, evictions) = (AtomicU64::new(1), AtomicU64::new(0));
        Self { table: ArcSwap::default(), writing: Mutex::default(), now, evictions, most, most_empty }
    }

    /// The table as it is now.
    pub fn read(&self) -> Guard<Arc<Table<K>>> {
        self.table.load()
    }

    /// When it is.
    pub fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }

    /// Adds a problem, unless it is there already, and gives what is there; with the problems that had to go for it.
    pub fn add(&self, problem: Problem, problem_kernels: ProblemKernels<K>) -> (Arc<ProblemKernels<K>>, Vec<Problem>) {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let table = self.table.load_full();
        if let Some(known) = table.get(&problem) {
            return (Arc::clone(known), Vec::new());
        }
        let problem_kernels = Arc::new(problem_kernels);
        problem_kernels.use_now(self.now.fetch_add(1, Relaxed) + 1);
        let mut more = Table::clone(&table);
        more.insert(problem, Arc::clone(&problem_kernels));
        let mut gone = Vec::new();
        for (empty, (problem, _)) in unpinned(&table, ProblemKernels::is_empty).into_iter().enumerate() {
            // With the one that is added.
            if empty + 1 >= self.most_empty {
                more.remove(&problem);
                gone.push(problem);
            }
        }
        self.table.store(Arc::new(more));
        (problem_kernels, gone)
    }

    /// Says that a kernel was published, and evicts if that was too much: gives the problems that have gone.
    pub fn published(&self) -> Vec<Problem> {
        self.now.fetch_add(1, Relaxed);
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let table = self.table.load_full();
        let mut kernels = 0;
        let full = unpinned(&table, |problem_kernels| !problem_kernels.is_empty()).into_iter();
        let gone: Vec<Problem> = full
            .filter_map(|(problem, problem_kernels)| {
                let own = problem_kernels.kernels().count();
                kernels += own;
                // The latest problem keeps its own.
                (kernels > self.most && kernels > own).then_some(problem)
            })
            .collect();
        if !gone.is_empty() {
            let mut fewer = Table::clone(&table);
            gone.iter().for_each(|problem| drop(fewer.remove(problem)));
            self.table.store(Arc::new(fewer));
            self.evictions.fetch_add(gone.len() as u64, Relaxed);
        }
        gone
    }

    /// Problems that lost their kernels.
    pub fn evictions(&self) -> u64 {
        self.evictions.load(Relaxed)
    }
}

/// Problems that may go, of those that are so; those that were used last come first.
fn unpinned<K>(table: &Table<K>, is_so: impl Fn(&ProblemKernels<K>) -> bool) -> Vec<(Problem, &ProblemKernels<K>)> {
    let may_go = table.iter().filter(|(_, kernels)| !kernels.is_pinned() && is_so(kernels));
    let mut may_go: Vec<_> = may_go.map(|(problem, kernels)| (*problem, &**kernels)).collect();
    may_go.sort_by_key(|(_, kernels)| std::cmp::Reverse(kernels.used()));
    may_go
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::recorder::Recorder;
    use crate::pick::Picker;
    use crate::spec::Arch;

    fn problem(n: u32) -> Problem {
        Problem::gemm().n(16 * n).k(64)
    }

    /// Adds a problem and publishes a kernel for one row.
    fn fill(problem_index: &ProblemIndex<u32>, n: u32) -> Arc<ProblemKernels<u32>> {
        let picker = Picker::new("NVIDIA H200", &Arch::H200);
        let problem_kernels =
            ProblemKernels::new(picker.schedule(&problem(n)).unwrap(), Recorder::new().seen(&problem(n)));
        let problem_kernels = problem_index.add(problem(n), problem_kernels).0;
        assert!(problem_kernels.get(0, problem_index.now()).is_none());
        assert!(
            problem_kernels.publish(problem_kernels.choice(0).spec(), &Arc::new(n))
                && !problem_kernels.publish(problem_kernels.choice(0).spec(), &Arc::new(9))
        );
        problem_index.published();
        problem_kernels
    }

    #[test]
    fn the_problem_that_was_not_asked_for_the_longest_gives_way() {
        let problem_index = ProblemIndex::new(3, 2);
        fill(&problem_index, 1).pin();
        let held = fill(&problem_index, 2);
        fill(&problem_index, 3);
        fill(&problem_index, 4);
        assert_eq!(problem_index.evictions(), 0, "what is pinned does not count");
        // 2 is asked for again.
        assert!(held.get(0, problem_index.now()).is_some());
        fill(&problem_index, 5);
        let has = |n| problem_index.read().contains_key(&problem(n));
        assert_eq!([1, 2, 3, 4, 5].map(has), [true, true, false, true, true]);
        let gone = fill(&problem_index, 6);
        assert_eq!([1, 2, 3, 4, 5, 6].map(has), [true, true, false, false, true, true]);
        assert_eq!((problem_index.evictions(), held.kernels().count(), *held.get(0, 0).unwrap().kernel), (2, 1, 2));
        let again = ProblemKernels::new(Arc::clone(gone.schedule()), Recorder::new().seen(&problem(6)));
        let again = problem_index.add(problem(6), again).0;
        assert!(Arc::ptr_eq(&again, &gone), "a problem is there once");
    }

    /// Those whose kernels were refused, say.
    #[test]
    fn of_problems_without_kernels_the_latest_stay() {
        let problem_index = ProblemIndex::new(3, 4);
        let picker = Picker::new("NVIDIA H200", &Arch::H200);
        let schedule = picker.schedule(&problem(1)).unwrap();
        let empty = |n| ProblemKernels::new(Arc::clone(&schedule), Recorder::new().seen(&problem(n)));
        let pinned = problem_index.add(problem(1), empty(1)).0;
        pinned.pin();
        fill(&problem_index, 2);
        let first = problem_index.add(problem(3), empty(3)).0;
        let gone: Vec<Problem> = (4..7).flat_map(|n| problem_index.add(problem(n), empty(n)).1).collect();
        assert!(gone.is_empty());
        assert!(problem_index.published().is_empty());
        assert!(first.get(0, problem_index.now()).is_none(), "it is asked for again");
        let gone: Vec<Problem> = (7..100).flat_map(|n| problem_index.add(problem(n), empty(n)).1).collect();
        assert_eq!((gone.len(), problem_index.evictions()), (93, 0));
        assert_eq!(gone[..5], [4, 5, 6, 3, 7].map(problem));
        let table = problem_index.read();
        let left: Vec<u32> = (1..100).filter(|n| table.contains_key(&problem(*n))).collect();
        assert_eq!(left, [1, 2, 96, 97, 98, 99]);
    }

    #[test]
    fn one_problem_keeps_its_kernels_however_many() {
        let problem_index = ProblemIndex::new(1, 1);
        let picker = Picker::new("NVIDIA H200", &Arch::H200);
        let schedule = picker.schedule(&Problem::gemm().n(4096).k(4096)).unwrap();
        let problem_kernels = ProblemKernels::new(schedule, Recorder::new().seen(&problem(1)));
        let problem_kernels = problem_index.add(Problem::gemm().n(4096).k(4096), problem_kernels).0;
        for interval in problem_kernels.intervals() {
            problem_kernels.publish(interval.choice.spec(), &Arc::new(0));
            problem_index.published();
        }
        assert!(problem_kernels.kernels().count() > 1 && problem_index.evictions() == 0);
        assert_eq!(problem_index.read().len(), 1);
    }
}
