//! What an engine counts.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde::Serialize;

use crate::cache::CacheStats;
use crate::run::LoadTime;

/// A number that goes up.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub fn add(&self) {
        self.add_many(1);
    }

    pub fn add_many(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number that many threads count up all the time, each in a cache line of its own, as far as there are some.
#[derive(Debug, Default)]
pub(super) struct Striped([Stripe; Striped::STRIPES]);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(Count);

thread_local! {
    /// Its address tells threads apart.
    static HERE: u8 = const { 0 };
}

impl Striped {
    const STRIPES: usize = 32;

    pub fn add(&self) {
        // Thread locals of two threads lie pages apart, at the same place of a page: the low bits say nothing.
        let here = HERE.with(|here| std::ptr::from_ref(here).addr()) >> 12;
        self.0[(here ^ (here >> 5) ^ (here >> 10)) % Self::STRIPES].0.add();
    }

    pub fn get(&self) -> u64 {
        self.0.iter().map(|stripe| stripe.0.get()).sum()
    }
}

/// Those of a residency.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub resident: Striped,
    pub fallbacks: Striped,
    pub unserved: Count,
    pub background_asked: Count,
    pub background_made: Count,
    pub reclaimed: Count,
    loads: Count,
    load_us: AtomicU64,
    load_wait_us: AtomicU64,
}

impl Counters {
    /// Counts a load, and gives its time on.
    pub fn loaded(&self, time: LoadTime) -> LoadTime {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.loads.add();
        self.load_us.fetch_add(micros(time.driver), Relaxed);
        self.load_wait_us.fetch_add(micros(time.waited), Relaxed);
        time
    }

    pub fn loads(&self) -> u64 {
        self.loads.get()
    }

    pub fn load_ms(&self) -> f64 {
        self.load_us.load(Relaxed) as f64 / 1e3
    }

    pub fn load_wait_ms(&self) -> f64 {
        self.load_wait_us.load(Relaxed) as f64 / 1e3
    }
}

/// Counters of an [`Engine`](super::Engine) since it was made. Numbers that belong together may be a few calls apart.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct EngineStats {
    /// Calls served by the kernel that is chosen, which was loaded already.
    pub resident: u64,
    /// Calls served by another kernel in its place.
    pub fallbacks: u64,
    /// Calls that got nothing, since they did not wait.
    pub unserved: u64,
    /// Kernels loaded onto the device, preparing ones included.
    pub loads: u64,
    /// How long that took in the driver, in milliseconds.
    pub load_ms: f64,
    /// How long threads waited until the loads before theirs were done, all together, in milliseconds.
    pub load_wait_ms: f64,
    /// Problems whose calls find loaded kernels.
    pub problems: usize,
    /// Kernels that they find.
    pub kernels: usize,
    /// Bytes of their machine code.
    pub kernel_bytes: usize,
    /// Problems that lost their kernels, since too many others were loaded after them.
    pub evictions: u64,
    /// Kernels that were dropped, on this device by whomever, and are still loaded.
    pub retired: usize,
    /// Kernels that the engine has unloaded by itself.
    pub reclaimed: u64,
    /// Problems that [`Engine::record`](super::Engine::record) has forgotten, since too many others were asked for after
    /// them.
    pub forgotten: u64,
    /// Work behind the callers.
    pub background: BackgroundStats,
    /// Compiling and its caches.
    pub cache: CacheStats,
}

/// Counters of an engine's background thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BackgroundStats {
    /// Kernels that calls did not wait for.
    pub asked: u64,
    /// Those of them that are loaded now.
    pub made: u64,
    /// Those that wait or are being made.
    pub on_its_way: usize,
    /// Kernels that failed, here or in a warm-up, and are not tried again before the next warm-up: name and reason.
    pub failures: Vec<(String, String)>,
    /// Failures that were forgotten, since too many others were asked for after them: these kernels are tried again.
    pub forgotten: u64,
}

impl fmt::Display for EngineStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resident, fallbacks, unserved, loads, load_ms, load_wait_ms, .. } = self;
        let Self { problems, kernels, kernel_bytes, evictions, retired, reclaimed, forgotten, .. } = self;
        writeln!(f, "calls: {resident} of loaded kernels, {fallbacks} of fallbacks, {unserved} not served")?;
        writeln!(
            f,
            "loaded: {kernels} kernels ({kernel_bytes} B) of {problems} problems, {evictions} problems evicted"
        )?;
        writeln!(f, "dropped: {retired} kernels still loaded, {reclaimed} unloaded; {forgotten} problems forgotten")?;
        writeln!(f, "loads: {loads} in {load_ms:.1} ms of the driver, {load_wait_ms:.1} ms of waiting for a turn")?;
        let BackgroundStats { asked, made, on_its_way, failures, forgotten } = &self.background;
        let failed = failures.len();
        write!(f, "background: {asked} asked for, {made} made, {on_its_way} on their way, {failed} failed")?;
        writeln!(f, ", {forgotten} failures forgotten")?;
        for (kernel, why) in failures {
            writeln!(f, "  {kernel}: {why}")?;
        }
        write!(f, "cache: {}", self.cache)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_between_stripes() {
        let striped = Striped::default();
        std::thread::scope(|scope| {
            (0..8).for_each(|_| drop(scope.spawn(|| (0..1000).for_each(|_| striped.add()))));
        });
        assert_eq!(striped.get(), 8000);
    }
}
