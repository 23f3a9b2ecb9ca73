//! What `background` is built of, named in one place: tests/models/background.rs puts loom's in its stead.

pub(super) use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};
