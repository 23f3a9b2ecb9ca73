//! The thread behind an engine.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use super::loader::Loader;
use super::residency::Residency;

/// One thread that makes what calls did not wait for. It begins with the first of these, and ends with this: a compile
/// that is under way is waited for, since NVRTC cannot be interrupted; none begins after it.
pub(super) struct Worker<L: Loader> {
    residency: Arc<Residency<L>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl<L: Loader> Worker<L> {
    pub fn new(residency: Arc<Residency<L>>) -> Self {
        Self { residency, thread: Mutex::new(None) }
    }

    /// Sees to it that there is a thread.
    pub fn wake(&self) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_some() {
            return;
        }
        let residency = Arc::clone(&self.residency);
        let work = move || residency.queue.work(|job| residency.make(job));
        match thread::Builder::new().name("warpsmith".to_owned()).spawn(work) {
            Ok(handle) => *thread = Some(handle),
            // The next request tries again.
            Err(error) => tracing::warn!(%error, "no thread for work in the background"),
        }
    }
}

impl<L: Loader> Drop for Worker<L> {
    fn drop(&mut self) {
        self.residency.queue.close();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // A panic of it was reported where it happened.
        thread.into_iter().for_each(|thread| drop(thread.join()));
    }
}
