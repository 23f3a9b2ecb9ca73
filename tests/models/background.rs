//! Every interleaving of callers, a background worker and the end of an engine, gone through by loom: the file under test
//! is the engine's own, with loom's locks in place of the standard library's.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code)]

/// The engine's own file. (It has no documentation of its module inside, which could not be included.)
mod background {
    include!("../../src/engine/background.rs");
}

/// What `background` is built of.
mod sync {
    pub use loom::sync::{Condvar, Mutex, MutexGuard};

    use loom::cell::UnsafeCell;
    use loom::sync::atomic::{
        AtomicU8,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    };

    const EMPTY: u8 = 0;
    const WRITING: u8 = 1;
    const FULL: u8 = 2;

    /// The part of std's `OnceLock` that is used, by the orderings that its documentation promises: who sees it full sees
    /// all that was done before it was set. loom has none.
    #[derive(Debug)]
    pub struct OnceLock<T> {
        state: AtomicU8,
        value: UnsafeCell<Option<T>>,
    }

    // SAFETY: the cell is written by the one thread that takes `state` from EMPTY, before it says FULL, and read after
    // that only. (loom's cell checks just that.)
    unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}
    // SAFETY: it owns what it holds.
    unsafe impl<T: Send> Send for OnceLock<T> {}

    impl<T> OnceLock<T> {
        pub fn new() -> Self {
            Self { state: AtomicU8::new(EMPTY), value: UnsafeCell::new(None) }
        }

        pub fn get(&self) -> Option<&T> {
            let is_full = self.state.load(Acquire) == FULL;
            // SAFETY: nobody writes to it any more.
            is_full.then(|| self.value.with(|value| unsafe { (*value).as_ref() })).flatten()
        }

        pub fn set(&self, value: T) -> Result<(), T> {
            match self.state.compare_exchange(EMPTY, WRITING, AcqRel, Relaxed) {
                Ok(_) => {
                    // SAFETY: this thread alone has taken `state` from EMPTY.
                    self.value.with_mut(|place| unsafe { *place = Some(value) });
                    self.state.store(FULL, Release);
                    Ok(())
                }
                Err(_) => Err(value),
            }
        }
    }
}

use std::sync::Arc as Shared;

use background::{Asked, Queue, Slot};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use loom::thread;

const KEY: u8 = 7;

struct World {
    slot: Slot<[u32; 2]>,
    queue: Queue<u8>,
    makes: AtomicUsize,
    dropped: AtomicBool,
}

impl World {
    fn new() -> Arc<Self> {
        let (slot, queue) = (Slot::new(), Queue::new(4));
        Arc::new(Self { slot, queue, makes: AtomicUsize::new(0), dropped: AtomicBool::new(false) })
    }

    /// What a worker does with a key.
    fn make(&self) -> Result<(), String> {
        assert!(!self.dropped.load(SeqCst), "made after the end");
        self.makes.fetch_add(1, SeqCst);
        self.slot.publish(&Shared::new([3, 4]));
        Ok(())
    }

    /// What a caller does: what it is served with, never neither. 0 is what stands in.
    fn serve(&self) -> u32 {
        match self.slot.get() {
            Some(made) => made[0] + made[1],
            None => match self.queue.ask(&KEY, || self.slot.get().is_some()) {
                Asked::There => self.slot.get().map(|made| made[0] + made[1]).expect("it said that it is there"),
                _ => 0,
            },
        }
    }
}

fn worker(world: &Arc<World>) -> thread::JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || world.queue.work(|_| world.make()))
}

/// Two callers and a worker: the key is made once, and whoever sees it sees all of it. The worker ends itself with the one
/// key, so a request that does not wake it would leave this waiting for ever, which loom finds.
#[test]
fn it_is_made_once_and_seen_whole() {
    loom::model(|| {
        let world = World::new();
        let worker = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.queue.work(|_| {
                    let made = world.make();
                    world.queue.close();
                    made
                });
            })
        };
        let caller = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.serve())
        };
        for served in [world.serve(), caller.join().unwrap()] {
            assert!(served == 0 || served == 7, "half of it: {served}");
        }
        worker.join().unwrap();
        assert_eq!((world.makes.load(SeqCst), world.serve(), world.queue.on_its_way()), (1, 7, 0));
    });
}

/// A caller that asks twice while the key is made, published and forgotten: it is not made again.
#[test]
fn it_is_not_made_again() {
    loom::model(|| {
        let world = World::new();
        let worker = worker(&world);
        let first = world.serve();
        let second = world.serve();
        assert!(first <= second, "what was there is there for good");
        world.queue.close();
        worker.join().unwrap();
        assert!(world.makes.load(SeqCst) <= 1);
        assert_eq!(world.serve(), 7 * world.makes.load(SeqCst) as u32);
    });
}

/// The end at any moment: the worker ends, and after it nothing is made.
#[test]
fn nothing_is_made_after_the_end() {
    loom::model(|| {
        let world = World::new();
        let worker = worker(&world);
        let caller = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.serve())
        };
        world.queue.close();
        worker.join().unwrap();
        world.dropped.store(true, SeqCst);
        caller.join().unwrap();
        let asked = world.queue.ask(&KEY, || world.slot.get().is_some());
        assert!(matches!(asked, Asked::There | Asked::Closed), "{asked:?}");
        assert!(world.makes.load(SeqCst) <= 1);
        assert_eq!(world.queue.on_its_way(), 0);
    });
}

/// A failure is tried once, whoever asks and when, until it is forgiven.
#[test]
fn a_failure_is_remembered() {
    loom::model(|| {
        let world = World::new();
        let worker = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.queue.work(|_| {
                    world.makes.fetch_add(1, SeqCst);
                    world.queue.close();
                    Err("no".to_owned())
                });
            })
        };
        let caller = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.serve())
        };
        assert_eq!((world.serve(), caller.join().unwrap()), (0, 0));
        worker.join().unwrap();
        assert_eq!(world.makes.load(SeqCst), 1);
        assert_eq!(world.queue.ask(&KEY, || false), Asked::Failed("no".into()));
        world.queue.note(&KEY, None);
        assert_eq!(world.queue.ask(&KEY, || false), Asked::Closed);
    });
}
