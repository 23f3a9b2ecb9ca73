//! How many threads work at a time.

use std::num::NonZero;
use std::thread::available_parallelism;

/// As many as there are cores for.
pub(crate) fn cores() -> usize {
    available_parallelism().map_or(1, NonZero::get)
}
