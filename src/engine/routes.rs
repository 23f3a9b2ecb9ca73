//! All routes: read by every call without a lock, replaced as a whole.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};
use foldhash::fast::RandomState;

use super::route::Route;
use crate::spec::Problem;

type Table<K> = HashMap<Problem, Arc<Route<K>>, RandomState>;

/// The routes of the problems that were asked for. Where too many kernels are loaded for them, the problem that was not
/// asked for the longest loses its kernels: those who hold one keep it.
#[derive(Debug)]
pub(super) struct Routes<K> {
    table: ArcSwap<Table<K>>,
    /// Held while the table is replaced.
    writing: Mutex<()>,
    /// Kernels published so far: what "when" means to a route.
    now: AtomicU64,
    evictions: AtomicU64,
    most: usize,
}

impl<K> Routes<K> {
    /// At most `most` kernels in routes that are not pinned.
    pub fn new(most: usize) -> Self {
        let (now, evictions) = (AtomicU64::new(1), AtomicU64::new(0));
        Self { table: ArcSwap::default(), writing: Mutex::default(), now, evictions, most }
    }

    /// The table as it is now.
    pub fn read(&self) -> Guard<Arc<Table<K>>> {
        self.table.load()
    }

    /// When it is.
    pub fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }

    /// Adds the route of a problem, unless there is one already, and gives that which is there.
    pub fn add(&self, problem: Problem, route: Route<K>) -> Arc<Route<K>> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let table = self.table.load_full();
        if let Some(known) = table.get(&problem) {
            return Arc::clone(known);
        }
        let route = Arc::new(route);
        let mut more = Table::clone(&table);
        more.insert(problem, Arc::clone(&route));
        self.table.store(Arc::new(more));
        route
    }

    /// Says that a kernel was published, and evicts if that was too much.
    pub fn published(&self) {
        self.now.fetch_add(1, Relaxed);
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let table = self.table.load_full();
        let mut kernels = 0;
        let mut unpinned: Vec<_> = table.iter().filter(|(_, route)| !route.is_pinned()).collect();
        unpinned.sort_by_key(|(_, route)| std::cmp::Reverse(route.used()));
        let gone: Vec<Problem> = unpinned
            .into_iter()
            .filter_map(|(problem, route)| {
                let own = route.kernels().count();
                kernels += own;
                // Only what has kernels gives some back, and the latest problem keeps its own.
                (own > 0 && kernels > self.most && kernels > own).then_some(*problem)
            })
            .collect();
        if !gone.is_empty() {
            let mut fewer = Table::clone(&table);
            gone.iter().for_each(|problem| drop(fewer.remove(problem)));
            self.table.store(Arc::new(fewer));
            self.evictions.fetch_add(gone.len() as u64, Relaxed);
        }
    }

    /// Problems that lost their kernels.
    pub fn evictions(&self) -> u64 {
        self.evictions.load(Relaxed)
    }
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
    fn fill(routes: &Routes<u32>, n: u32) -> Arc<Route<u32>> {
        let picker = Picker::new("NVIDIA H200", &Arch::H200);
        let route = Route::new(picker.schedule(&problem(n)).unwrap(), Recorder::new().seen(&problem(n)));
        let route = routes.add(problem(n), route);
        assert!(route.get(0, routes.now()).is_none());
        assert!(
            route.publish(route.choice(0).spec(), &Arc::new(n)) && !route.publish(route.choice(0).spec(), &Arc::new(9))
        );
        routes.published();
        route
    }

    #[test]
    fn the_problem_that_was_not_asked_for_the_longest_gives_way() {
        let routes = Routes::new(3);
        fill(&routes, 1).pin();
        let held = fill(&routes, 2);
        fill(&routes, 3);
        fill(&routes, 4);
        assert_eq!(routes.evictions(), 0, "what is pinned does not count");
        // 2 is asked for again.
        assert!(held.get(0, routes.now()).is_some());
        fill(&routes, 5);
        let has = |n| routes.read().contains_key(&problem(n));
        assert_eq!([1, 2, 3, 4, 5].map(has), [true, true, false, true, true]);
        let gone = fill(&routes, 6);
        assert_eq!([1, 2, 3, 4, 5, 6].map(has), [true, true, false, false, true, true]);
        assert_eq!((routes.evictions(), held.kernels().count(), **held.get(0, 0).unwrap().kernel), (2, 1, 2));
        let again = routes.add(problem(6), Route::new(Arc::clone(gone.schedule()), Recorder::new().seen(&problem(6))));
        assert!(Arc::ptr_eq(&again, &gone), "there is one route of a problem");
    }

    #[test]
    fn one_problem_keeps_its_kernels_however_many() {
        let routes = Routes::new(1);
        let picker = Picker::new("NVIDIA H200", &Arch::H200);
        let schedule = picker.schedule(&Problem::gemm().n(4096).k(4096)).unwrap();
        let route =
            routes.add(Problem::gemm().n(4096).k(4096), Route::new(schedule, Recorder::new().seen(&problem(1))));
        for interval in route.intervals() {
            route.publish(interval.choice.spec(), &Arc::new(0));
            routes.published();
        }
        assert!(route.kernels().count() > 1 && routes.evictions() == 0);
        assert_eq!(routes.read().len(), 1);
    }
}
