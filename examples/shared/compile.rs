//! Cubins ahead of everything else, on all cores.

use std::collections::{HashMap, HashSet};
use std::num::NonZero;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use indicatif::ProgressBar;
use warpsmith::cache::{Forge, Forged};
use warpsmith::spec::Spec;

/// What came of a spec; the error as text, since it is shown in several places.
pub type Made = std::result::Result<Forged, String>;

/// The cubin of every spec, in order. Each is built once; those that ask for it again get it from memory.
pub fn all(forge: &Forge, specs: &[Spec], progress: &ProgressBar) -> Vec<Made> {
    let make = |spec: &Spec| {
        let made = forge.cubin(spec).map_err(|error| format!("{error:?}"));
        progress.inc(1);
        made
    };
    let mut seen = HashSet::new();
    let once: Vec<(&Spec, OnceLock<Made>)> =
        specs.iter().filter(|spec| seen.insert(**spec)).map(|spec| (spec, OnceLock::new())).collect();
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get).min(once.len()) {
            scope.spawn(|| {
                while let Some((spec, made)) = once.get(next.fetch_add(1, Ordering::Relaxed)) {
                    made.get_or_init(|| make(spec));
                }
            });
        }
    });
    let mut made: HashMap<Spec, Made> =
        once.into_iter().filter_map(|(spec, made)| Some((*spec, made.into_inner()?))).collect();
    specs.iter().map(|spec| made.remove(spec).unwrap_or_else(|| make(spec))).collect()
}
