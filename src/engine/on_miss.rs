//! What a caller wants where a kernel is not loaded yet.

use crate::spelling::{spelled, words};

/// What becomes of a call whose kernel is not loaded yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnMiss {
    /// It waits until the kernel is compiled, if need be, and loaded.
    #[default]
    Block,
    /// It is served at once by another loaded kernel of the same problem, chosen for the nearest other M; the right one
    /// is compiled and loaded behind it, and later calls get that. Where no kernel of the problem is loaded, it is an
    /// error at once ([`Error::is_not_loaded`](crate::Error::is_not_loaded)), and the kernel is made all the same.
    Fallback,
    /// It is an error at once ([`Error::is_not_loaded`](crate::Error::is_not_loaded)), and nothing is made.
    Error,
}

words!(OnMiss, "policy of a miss", { Block => "block", Fallback => "fallback", Error => "error" });

spelled!(OnMiss);
