//! A bounded cache in memory, in which a value is computed once however many threads ask for it.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lru::LruCache;
use once_cell::sync::OnceCell;

/// Least recently used first out, bounded by entries and by bytes, single flight for each key.
///
/// Values are shared: one that is evicted lives on for as long as a caller holds it. No lock is held while a value is
/// computed. A computation that fails or panics leaves nothing behind; one of the threads that waited for it tries
/// next.
pub struct Memory<K, V> {
    state: Mutex<State<K, V>>,
    weigh: fn(&V) -> usize,
    max_entries: usize,
    max_bytes: usize,
}

struct State<K, V> {
    kept: LruCache<K, (Arc<V>, usize)>,
    bytes: usize,
    flights: HashMap<K, Flight<V>>,
}

/// A value on its way; the map holds one reference, every thread that waits for it another.
type Flight<V> = Arc<OnceCell<Arc<V>>>;

impl<K: Clone + Eq + Hash, V> Memory<K, V> {
    /// Keeps at most `max_entries` values (at least one), of at most `max_bytes` together by `weigh`.
    #[must_use]
    pub fn new(max_entries: usize, max_bytes: usize, weigh: fn(&V) -> usize) -> Self {
        // Unbounded by itself: a bounded one would reserve room for all its entries now.
        let state = State { kept: LruCache::unbounded(), bytes: 0, flights: HashMap::new() };
        Self { state: Mutex::new(state), weigh, max_entries: max_entries.max(1), max_bytes }
    }

    /// The value of `key`, if it is kept.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<Arc<V>> {
        self.lock().kept.get(key).map(|(value, _)| Arc::clone(value))
    }

    /// The value of `key`, computed now if it is not kept, and whether this call computed it.
    ///
    /// Threads that ask for a key under computation wait for it. `compute` must not ask for its own key.
    ///
    /// # Errors
    /// What `compute` returns; it is not remembered.
    pub fn get_or_try_compute<E>(
        &self,
        key: &K,
        compute: impl FnOnce() -> Result<Arc<V>, E>,
    ) -> Result<(Arc<V>, bool), E> {
        let flight = {
            let mut state = self.lock();
            if let Some((value, _)) = state.kept.get(key) {
                return Ok((Arc::clone(value), false));
            }
            Arc::clone(state.flights.entry(key.clone()).or_default())
        };
        let landing = Landing { memory: self, key, flight };
        let mut computed = false;
        let value = landing.flight.get_or_try_init(|| {
            let value = compute()?;
            computed = true;
            Ok(value)
        })?;
        let value = Arc::clone(value);
        if computed {
            self.keep(key, &value);
        }
        Ok((value, computed))
    }

    /// How many values are kept, and their bytes.
    #[must_use]
    pub fn usage(&self) -> (usize, usize) {
        let state = self.lock();
        (state.kept.len(), state.bytes)
    }

    /// Keeps a computed value and lands its flight, in one step: no thread can find neither.
    fn keep(&self, key: &K, value: &Arc<V>) {
        let weight = (self.weigh)(value);
        // Dropped after the lock is released: the last reference to a big value may be among them.
        let mut evicted = Vec::new();
        let mut state = self.lock();
        state.flights.remove(key);
        if weight > self.max_bytes {
            return;
        }
        if let Some((_, old)) = state.kept.push(key.clone(), (Arc::clone(value), weight)) {
            state.bytes -= old.1;
            evicted.push(old);
        }
        state.bytes += weight;
        while state.bytes > self.max_bytes || state.kept.len() > self.max_entries {
            let Some((_, old)) = state.kept.pop_lru() else { break };
            state.bytes -= old.1;
            evicted.push(old);
        }
        drop(state);
    }

    fn lock(&self) -> MutexGuard<'_, State<K, V>> {
        // Nothing that can panic runs under the lock but the key's own Hash and Eq, before anything is changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes a flight off the map when the last thread that waits for it leaves without a value (an error or a panic).
struct Landing<'a, K: Clone + Eq + Hash, V> {
    memory: &'a Memory<K, V>,
    key: &'a K,
    flight: Flight<V>,
}

impl<K: Clone + Eq + Hash, V> Drop for Landing<'_, K, V> {
    fn drop(&mut self) {
        let mut state = self.memory.lock();
        let is_ours = state.flights.get(self.key).is_some_and(|flight| Arc::ptr_eq(flight, &self.flight));
        // References are only taken under the lock: two are the map's and this one.
        if is_ours && Arc::strong_count(&self.flight) <= 2 {
            state.flights.remove(self.key);
        }
    }
}

impl<K: Clone + Eq + Hash, V> fmt::Debug for Memory<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (entries, bytes) = self.usage();
        f.debug_struct("Memory").field("entries", &entries).field("bytes", &bytes).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    fn bytes(entries: usize, limit: usize) -> Memory<u32, Vec<u8>> {
        Memory::new(entries, limit, Vec::len)
    }

    fn put(memory: &Memory<u32, Vec<u8>>, key: u32, length: usize) -> Arc<Vec<u8>> {
        let value = || Ok::<_, Infallible>(Arc::new(vec![0; length]));
        memory.get_or_try_compute(&key, value).unwrap().0
    }

    #[test]
    fn sixteen_threads_one_compute() {
        let (memory, computes, start) = (bytes(4, 100), AtomicUsize::new(0), Barrier::new(16));
        let compute = || {
            computes.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(30));
            Ok::<_, Infallible>(Arc::new(vec![7]))
        };
        let ask = || {
            start.wait();
            memory.get_or_try_compute(&1, compute).unwrap()
        };
        let found: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(computes.into_inner(), 1);
        assert_eq!(found.iter().filter(|(_, computed)| *computed).count(), 1);
        assert!(found.iter().all(|(value, _)| Arc::ptr_eq(value, &found[0].0)));
        assert!(memory.lock().flights.is_empty());
    }

    #[test]
    fn bounded_by_entries() {
        let memory = bytes(2, 100);
        put(&memory, 1, 1);
        put(&memory, 2, 1);
        assert!(memory.get(&1).is_some(), "1 is now the younger");
        put(&memory, 3, 1);
        assert!(memory.get(&2).is_none() && memory.get(&1).is_some() && memory.get(&3).is_some());
        assert_eq!(memory.usage(), (2, 2));
    }

    #[test]
    fn bounded_by_bytes_and_held_values_survive() {
        let memory = bytes(100, 100);
        let held = put(&memory, 1, 60);
        put(&memory, 2, 40);
        assert_eq!(memory.usage(), (2, 100));
        put(&memory, 3, 41);
        assert!(memory.get(&1).is_none());
        assert_eq!((memory.usage(), held.len()), ((2, 81), 60));
        put(&memory, 4, 100);
        assert_eq!(memory.usage(), (1, 100));
    }

    #[test]
    fn larger_than_the_budget_is_returned_but_not_kept() {
        let memory = bytes(100, 100);
        put(&memory, 1, 50);
        assert_eq!(put(&memory, 2, 101).len(), 101);
        assert!(memory.get(&2).is_none() && memory.get(&1).is_some());
        assert!(memory.lock().flights.is_empty());
    }

    #[test]
    fn failures_and_panics_leave_nothing_behind() {
        let memory = bytes(4, 100);
        assert_eq!(memory.get_or_try_compute(&1, || Err::<Arc<Vec<u8>>, _>("no")), Err("no"));
        let panics = || memory.get_or_try_compute(&1, || -> Result<_, ()> { panic!("on purpose") });
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert!(memory.lock().flights.is_empty());
        assert_eq!(put(&memory, 1, 3).len(), 3);
    }

    #[test]
    fn a_waiting_thread_takes_over_from_one_that_panics() {
        let (memory, computing) = (bytes(4, 100), Barrier::new(2));
        std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                memory.get_or_try_compute(&1, || -> Result<_, ()> {
                    computing.wait();
                    std::thread::sleep(Duration::from_millis(30));
                    panic!("on purpose")
                })
            });
            computing.wait();
            assert_eq!(put(&memory, 1, 3).len(), 3);
            assert!(first.join().is_err());
        });
        assert!(memory.lock().flights.is_empty() && memory.get(&1).is_some());
    }
}
