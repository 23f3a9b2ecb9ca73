//! Threads that write the bytes of buffers.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::weight::Source;

/// Bytes that a thread writes at a time: so few that they are in its cache when they are looked at.
pub(super) const SHARE: usize = 256 << 10;

/// Some bytes of a source, and where they are written.
pub(super) struct Job<'d> {
    pub(super) from: Source<'d>,
    pub(super) at: usize,
    pub(super) to: *mut u8,
    pub(super) bytes: usize,
}

// SAFETY: `Fillers::add`'s caller promises that what `to` points to is written by nobody else.
unsafe impl Send for Job<'_> {}

impl Job<'_> {
    /// Whether all of it is written and right.
    fn done(&self) -> bool {
        // SAFETY: the promise of `Fillers::add`'s caller.
        let to = unsafe { std::slice::from_raw_parts_mut(self.to, self.bytes) };
        // Whoever waits for it would wait for ever.
        catch_unwind(AssertUnwindSafe(|| self.from.write(self.at, to))).unwrap_or(false)
    }
}

/// Threads, and what they have to do.
pub(super) struct Fillers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// There is more to do, or nothing ever again.
    more: Condvar,
    /// A buffer is full, or nothing is being written.
    done: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(usize, Job<'static>)>,
    running: usize,
    /// Jobs of each buffer that are not done.
    left: Vec<usize>,
    is_wrong: bool,
    has_ended: bool,
    busy: Duration,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the next job, if there is one.
    fn work<'s>(&'s self, mut state: MutexGuard<'s, State>) -> (MutexGuard<'s, State>, bool) {
        let Some((buffer, job)) = state.waiting.pop_front() else { return (state, false) };
        state.running += 1;
        drop(state);
        let start = Instant::now();
        let is_right = job.done();
        let took = start.elapsed();
        let mut state = self.state();
        state.running -= 1;
        state.left[buffer] -= 1;
        state.is_wrong |= !is_right;
        state.busy += took;
        if state.left[buffer] == 0 || state.running == 0 {
            self.done.notify_all();
        }
        (state, true)
    }

    fn run(&self) {
        let mut state = self.state();
        while !state.has_ended {
            let (after, has_worked) = self.work(state);
            state = match has_worked {
                true => after,
                false => self.more.wait(after).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

impl Fillers {
    /// For so many buffers.
    pub(super) fn new(buffers: usize) -> Self {
        let fillers = Self { shared: Arc::default(), threads: Vec::new() };
        fillers.shared.state().left.resize(buffers, 0);
        fillers
    }

    /// What a buffer is filled with, by so many threads, the calling one among them: that works when it waits.
    ///
    /// # Safety
    /// Until [`Fillers::wait`] has returned for that buffer, or [`Fillers::clear`], the sources are there, and nobody else reads or
    /// writes what the jobs write, each something of its own.
    pub(super) unsafe fn add<'d>(&mut self, buffer: usize, jobs: impl Iterator<Item = Job<'d>>, threads: usize) {
        let jobs = jobs.map(|job| {
            // SAFETY: the caller's promise; a job is not looked at once it is done or cleared.
            let job = unsafe { std::mem::transmute::<Job<'d>, Job<'static>>(job) };
            (buffer, job)
        });
        let mut state = self.shared.state();
        let before = state.waiting.len();
        state.waiting.extend(jobs);
        state.left[buffer] += state.waiting.len() - before;
        let wanted = state.waiting.len();
        drop(state);
        // One share is written sooner than a thread wakes up.
        while self.threads.len() + 1 < threads.min(wanted) {
            let shared = self.shared.clone();
            let thread = thread::Builder::new().name("upload".to_owned()).spawn(move || shared.run());
            // The others do it.
            let Ok(thread) = thread else { break };
            self.threads.push(thread);
        }
        if wanted > 1 {
            self.shared.more.notify_all();
        }
    }

    /// Whether all jobs of a buffer are done.
    pub(super) fn is_done(&self, buffer: usize) -> bool {
        self.shared.state().left[buffer] == 0
    }

    /// Waits until all jobs of a buffer are done. Whether everything that was written has been right.
    pub(super) fn wait(&self, buffer: usize) -> bool {
        let mut state = self.shared.state();
        while state.left[buffer] > 0 {
            let (after, has_worked) = self.shared.work(state);
            state = match has_worked || after.left[buffer] == 0 {
                true => after,
                false => self.shared.done.wait(after).unwrap_or_else(PoisonError::into_inner),
            };
        }
        !state.is_wrong
    }

    /// Forgets what has not begun, and waits for the rest.
    pub(super) fn clear(&self) {
        let mut state = self.shared.state();
        state.waiting.clear();
        while state.running > 0 {
            state = self.shared.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.left.fill(0);
        state.is_wrong = false;
    }

    /// What all threads together have worked.
    pub(super) fn busy(&self) -> Duration {
        self.shared.state().busy
    }
}

impl Drop for Fillers {
    fn drop(&mut self) {
        self.clear();
        self.shared.state().has_ended = true;
        self.shared.more.notify_all();
        // One that panicked has said so.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}
