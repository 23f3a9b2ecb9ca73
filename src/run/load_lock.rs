//! Loads take turns, those of one context.
//!
//! The driver loads a context's modules one at a time, behind a lock of its own. Threads that all wait for that lock are
//! slower than threads that come one after the other, and none of them knows what its own load took. So loads line up
//! here before they call the driver. Launches never do.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use cudarc::driver::CudaContext;

/// What loading a kernel took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadTime {
    /// Until other loads of the same context were done.
    pub waited: Duration,
    /// In the driver: the module, its functions and their attributes.
    pub driver: Duration,
}

/// The turns of one context, shared by everything in the process that loads into it.
#[derive(Debug)]
pub(super) struct LoadLock(Arc<Mutex<()>>);

impl LoadLock {
    pub(super) fn of(context: &CudaContext) -> Self {
        Self(known(context.cu_ctx() as usize))
    }

    /// Loads when it is this thread's turn. Fails as `load` does.
    pub(super) fn take<T, E>(&self, load: impl FnOnce() -> Result<T, E>) -> Result<(T, LoadTime), E> {
        let asked = Instant::now();
        // Nothing is behind the lock that a panic could leave half done.
        let _turn = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = Instant::now();
        let loaded = load()?;
        Ok((loaded, LoadTime { waited: begun - asked, driver: begun.elapsed() }))
    }
}

/// The one mutex of a context. Handles of one device opened twice have the same context, and so the driver's same lock.
fn known(context: usize) -> Arc<Mutex<()>> {
    static KNOWN: Mutex<Vec<(usize, Weak<Mutex<()>>)>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|(_, turns)| turns.strong_count() > 0);
    if let Some(turns) = known.iter().find_map(|(of, turns)| turns.upgrade().filter(|_| *of == context)) {
        return turns;
    }
    let turns = Arc::default();
    known.push((context, Arc::downgrade(&turns)));
    turns
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn one_load_of_a_context_at_a_time_and_only_the_wait_is_longer() {
        const LOAD: Duration = Duration::from_millis(2);
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let load = || {
            most.fetch_max(1 + inside.fetch_add(1, SeqCst), SeqCst);
            thread::sleep(LOAD);
            inside.fetch_sub(1, SeqCst);
            Ok::<_, ()>(())
        };
        let times: Vec<LoadTime> = thread::scope(|scope| {
            // Each with turns of its own, as two handles of a device have.
            let take = || scope.spawn(|| LoadLock(known(1)).take(load).unwrap().1);
            let threads: Vec<_> = (0..8).map(|_| take()).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(most.into_inner(), 1);
        assert!(times.iter().all(|time| time.driver >= LOAD), "{times:?}");
        assert!(times.iter().any(|time| time.waited >= LOAD), "{times:?}");
    }

    #[test]
    fn contexts_do_not_wait_for_each_other() {
        let (first, second) = (LoadLock(known(2)), LoadLock(known(3)));
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            // Not done before a load into the other context is.
            let waiting = scope.spawn(move || first.take(|| told.recv_timeout(Duration::from_secs(60))));
            second.take(|| tell.send(())).unwrap();
            assert!(waiting.join().unwrap().is_ok());
        });
    }

    #[test]
    fn what_fails_or_panics_gives_its_turn_back() {
        let turns = LoadLock(known(4));
        assert_eq!(turns.take(|| Err::<(), _>("refused")), Err("refused"));
        let panics = || turns.take(|| -> Result<(), ()> { panic!("on purpose") });
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert!(turns.take(|| Ok::<_, ()>(())).is_ok());
    }
}
