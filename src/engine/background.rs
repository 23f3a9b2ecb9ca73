// Work behind the callers: what is not there is asked for, made once, published, and there for good.
//
// ```text
// caller                              worker
// slot.get(): there ▸ use it
// queue.ask(key, slot is full?)  ───▶ queue.work(make): make, slot.publish, then the key is forgotten
// ```
//
// A key is forgotten only after its slot is full, and `ask` looks at the slot while it holds the lock: so a key that is
// neither known nor full was never made, and nothing is made twice. What fails stays known, with its reason, and is not
// tried again until it is forgiven, or so many others have failed that it is forgotten. After `close` nothing begins.
//
// tests/background_model.rs goes through every interleaving of this file's code.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, PoisonError};

use lru::LruCache;

use super::sync::{Condvar, Mutex, MutexGuard, OnceLock};

/// A place for what is made: empty, then full for good. Reading it takes no lock.
#[derive(Debug)]
pub(super) struct Slot<V>(OnceLock<Arc<V>>);

impl<V> Slot<V> {
    pub fn new() -> Self {
        Self(OnceLock::new())
    }

    /// What was published, whole.
    pub fn get(&self) -> Option<&Arc<V>> {
        self.0.get()
    }

    /// Makes it visible to everyone at once, unless there is something already; whether it did.
    pub fn publish(&self, value: &Arc<V>) -> bool {
        self.0.set(Arc::clone(value)).is_ok()
    }
}

/// Keys that are to be made, are being made, or could not be.
#[derive(Debug)]
pub(super) struct Queue<K: Eq + Hash> {
    state: Mutex<State<K>>,
    changed: Condvar,
    most: usize,
}

#[derive(Debug)]
struct State<K: Eq + Hash> {
    waiting: VecDeque<K>,
    /// Those that wait and the one that is being made.
    on_its_way: HashSet<K>,
    /// Those that failed and why; what was asked for last comes first.
    failed: LruCache<K, Arc<str>>,
    forgotten: u64,
    closed: bool,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// It has been published meanwhile.
    There,
    /// It is waiting or being made; the first request has put it there.
    OnItsWay { first: bool },
    /// It was tried, and this is why there is none.
    Failed(Arc<str>),
    /// Too much is waiting already.
    Full,
    /// Nothing is made any more.
    Closed,
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// At most `most` keys wait, and of as many it is known that they failed.
    pub fn new(most: usize) -> Self {
        let (waiting, on_its_way, failed) = (VecDeque::new(), HashSet::new(), LruCache::unbounded());
        let state = State { waiting, on_its_way, failed, forgotten: 0, closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), most }
    }

    /// Asks for a key. `is_there`: whether its slot is full.
    pub fn ask(&self, key: &K, is_there: impl FnOnce() -> bool) -> Asked {
        let mut state = self.lock();
        if is_there() {
            return Asked::There;
        }
        if state.on_its_way.contains(key) {
            return Asked::OnItsWay { first: false };
        }
        if let Some(why) = state.failed.get(key) {
            return Asked::Failed(Arc::clone(why));
        }
        if state.closed {
            return Asked::Closed;
        }
        if state.waiting.len() >= self.most {
            return Asked::Full;
        }
        state.on_its_way.insert(key.clone());
        state.waiting.push_back(key.clone());
        drop(state);
        self.changed.notify_one();
        Asked::OnItsWay { first: true }
    }

    /// Makes what is asked for, one key after the other, until the queue is closed. `make` publishes what it makes; what
    /// it cannot make has a reason. A panic of it is one, too.
    pub fn work(&self, make: impl Fn(&K) -> Result<(), String>) {
        while let Some(key) = self.next() {
            let mut turn = Claim { queue: self, key, outcome: Err("the thread that made it panicked".to_owned()) };
            turn.outcome = make(&turn.key);
        }
    }

    /// Drops what is waiting. What is being made is finished; nothing begins after this.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        for key in std::mem::take(&mut state.waiting) {
            state.on_its_way.remove(&key);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Why there is none, if it was tried and failed.
    pub fn failure(&self, key: &K) -> Option<Arc<str>> {
        self.lock().failed.get(key).map(Arc::clone)
    }

    /// Everything that is known to have failed.
    pub fn failures(&self) -> Vec<(K, Arc<str>)> {
        self.lock().failed.iter().map(|(key, why)| (key.clone(), Arc::clone(why))).collect()
    }

    /// Failures that were forgotten, since too many others were asked for after them.
    pub fn forgotten(&self) -> u64 {
        self.lock().forgotten
    }

    /// Remembers what was tried elsewhere: a failure, or that there is none any more.
    pub fn note(&self, key: &K, failure: Option<String>) {
        let mut state = self.lock();
        // What is on its way here ends by itself.
        if !state.on_its_way.contains(key) {
            match failure {
                Some(why) => self.remember(&mut state, key, why),
                None => drop(state.failed.pop(key)),
            }
        }
    }

    /// How many keys wait or are being made.
    pub fn on_its_way(&self) -> usize {
        self.lock().on_its_way.len()
    }

    fn next(&self) -> Option<K> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(key) = state.waiting.pop_front() {
                return Some(key);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn remember(&self, state: &mut State<K>, key: &K, why: String) {
        state.failed.put(key.clone(), why.into());
        if state.failed.len() > self.most {
            state.failed.pop_lru();
            state.forgotten += 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        // Nothing that can panic runs under the lock but the key's own Hash and Eq, before anything is changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A key that is being made. Whatever happens, it is not on its way for ever.
struct Claim<'a, K: Clone + Eq + Hash> {
    queue: &'a Queue<K>,
    key: K,
    outcome: Result<(), String>,
}

impl<K: Clone + Eq + Hash> Drop for Claim<'_, K> {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut self.outcome, Ok(()));
        let mut state = self.queue.lock();
        state.on_its_way.remove(&self.key);
        if let Err(why) = outcome {
            self.queue.remember(&mut state, &self.key, why);
        }
    }
}
