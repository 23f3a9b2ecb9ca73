//! Cubins ahead of everything else, on all cores.

use std::num::NonZero;
use std::thread;

use indicatif::ProgressBar;
use warpsmith::cache::{Fetched, KernelCache, Share};
use warpsmith::spec::Spec;

/// What came of a spec; the error as text, since it is shown in several places.
pub type Made = std::result::Result<Fetched, String>;

/// The cubin of every spec, in order. Each is built once; those that ask for it again get it from memory.
pub fn all(cache: &KernelCache, specs: &[Spec], progress: &ProgressBar) -> Vec<Made> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let made = cache.cubins(specs, Share::WHOLE, threads, |_, _| progress.inc(1));
    made.into_iter().map(|made| made.map_err(|error| format!("{error:?}"))).collect()
}

/// The cubin of one spec.
pub fn one(cache: &KernelCache, spec: &Spec) -> Made {
    cache.cubin(spec).map_err(|error| format!("{error:?}"))
}
