//! What all cores work at.

use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};
use std::thread::available_parallelism;

use warpsmith::internal::crew;

/// How many threads work at a time.
pub(crate) fn cores() -> usize {
    available_parallelism().map_or(1, NonZero::get)
}

/// Does `work` with each of the parts, such as pieces of a slice that is filled.
pub(crate) fn each_part<T: Send>(parts: impl Iterator<Item = T>, work: impl Fn(&mut T) + Sync) {
    let parts: Vec<_> = parts.map(Mutex::new).collect();
    crew::each(&parts, cores(), |part| {
        work(&mut part.lock().unwrap_or_else(PoisonError::into_inner));
        ControlFlow::Continue(())
    });
}
