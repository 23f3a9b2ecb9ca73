//! What is counted: by a cache, and by its disk.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde::Serialize;

use super::sealing::SealStats;
use crate::build::Cubin;

/// Those of a cache.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub memory_hits: AtomicU64,
    pub pack_hits: AtomicU64,
    pub pack_errors: AtomicU64,
    compiles: AtomicU64,
    failures: AtomicU64,
    compile_us: AtomicU64,
    compiled_bytes: AtomicU64,
}

impl Counters {
    /// Counts a compile that took so long and gave this, or failed.
    pub fn compiled(&self, elapsed: Duration, cubin: Option<&Cubin>) {
        self.compile_us.fetch_add(micros(elapsed), Relaxed);
        match cubin {
            Some(cubin) => {
                self.compiles.fetch_add(1, Relaxed);
                self.compiled_bytes.fetch_add(cubin.image().len() as u64, Relaxed);
            }
            None => {
                self.failures.fetch_add(1, Relaxed);
            }
        }
    }

    /// The numbers now, with how many cubins and bytes are kept in memory.
    pub fn snapshot(&self, sealed: SealStats, (kept, kept_bytes): (usize, usize), disk: DiskStats) -> CacheStats {
        CacheStats {
            memory_hits: self.memory_hits.load(Relaxed),
            pack_hits: self.pack_hits.load(Relaxed),
            pack_errors: self.pack_errors.load(Relaxed),
            disk_hits: disk.hits,
            layer_hits: disk.layer_hits,
            compiles: self.compiles.load(Relaxed),
            failures: self.failures.load(Relaxed),
            compile_ms: self.compile_us.load(Relaxed) as f64 / 1e3,
            compiled_bytes: self.compiled_bytes.load(Relaxed),
            kept,
            kept_bytes,
            sealed,
            disk,
        }
    }
}

/// Counters of a [`KernelCache`](super::KernelCache) since it was made.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CacheStats {
    /// Cubins that were in memory or just being made by another thread.
    pub memory_hits: u64,
    /// Cubins that were in a pack.
    pub pack_hits: u64,
    /// Cubins that were in a pack, but damaged; each was logged.
    pub pack_errors: u64,
    /// Cubins that were on disk.
    pub disk_hits: u64,
    /// Cubins that were in a layer below.
    pub layer_hits: u64,
    /// Cubins that NVRTC compiled.
    pub compiles: u64,
    /// Compiles that failed.
    pub failures: u64,
    /// Time spent compiling, all threads together, in milliseconds.
    pub compile_ms: f64,
    /// Bytes of machine code that came of it.
    pub compiled_bytes: u64,
    /// Cubins kept in memory now.
    pub kept: usize,
    /// Their bytes.
    pub kept_bytes: usize,
    /// What was compiled, or refused, after the end of compiling.
    pub sealed: SealStats,
    /// The disk's own counters.
    pub disk: DiskStats,
}

impl fmt::Display for CacheStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory_hits, pack_hits, pack_errors, kept, kept_bytes, disk, .. } = self;
        write!(f, "memory {memory_hits} hits ({kept} kept, {kept_bytes} B), ")?;
        write!(f, "pack {pack_hits} hits ({pack_errors} damaged), ")?;
        let Self { compiles, failures, compile_ms, compiled_bytes, .. } = self;
        write!(f, "{compiles} compiles ({failures} failed) to {compiled_bytes} B in {compile_ms:.1} ms; ")?;
        write!(f, "{}; disk: {disk}", self.sealed)
    }
}

/// Those of a disk.
#[derive(Default)]
pub(super) struct DiskCounters {
    pub hits: AtomicU64,
    pub layer_hits: AtomicU64,
    pub misses: AtomicU64,
    pub stores: AtomicU64,
    pub read_bytes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub evictions: AtomicU64,
    pub evicted_bytes: AtomicU64,
    pub reaped: AtomicU64,
    pub waits: AtomicU64,
    pub wait_us: AtomicU64,
    pub gave_up: AtomicU64,
    pub errors: AtomicU64,
}

impl DiskCounters {
    /// The numbers now, with what went wrong last.
    pub fn snapshot(&self, last_error: Option<String>) -> DiskStats {
        DiskStats {
            hits: self.hits.load(Relaxed),
            layer_hits: self.layer_hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            stores: self.stores.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            written_bytes: self.written_bytes.load(Relaxed),
            evictions: self.evictions.load(Relaxed),
            evicted_bytes: self.evicted_bytes.load(Relaxed),
            reaped: self.reaped.load(Relaxed),
            waits: self.waits.load(Relaxed),
            wait_ms: self.wait_us.load(Relaxed) as f64 / 1e3,
            gave_up: self.gave_up.load(Relaxed),
            errors: self.errors.load(Relaxed),
            last_error,
        }
    }
}

/// Counters of a [`Disk`](super::Disk) since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DiskStats {
    /// Entries found and verified in the directory that is written to.
    pub hits: u64,
    /// Entries found and verified in one that is only read.
    pub layer_hits: u64,
    /// Entries that were not there or not to be trusted.
    pub misses: u64,
    /// Entries written.
    pub stores: u64,
    /// Bytes of entries that were read.
    pub read_bytes: u64,
    /// Bytes of entries that were written.
    pub written_bytes: u64,
    /// Entries removed by this process to keep within the limit.
    pub evictions: u64,
    /// Their bytes.
    pub evicted_bytes: u64,
    /// Files of dead processes that this one removed.
    pub reaped: u64,
    /// Times that another process was waited for, since it was compiling the same.
    pub waits: u64,
    /// How long, all threads together, in milliseconds.
    pub wait_ms: f64,
    /// Waits that ended because they took too long.
    pub gave_up: u64,
    /// Reads, writes and checks that went wrong; each was logged, but of a directory that others can write to only the
    /// first.
    pub errors: u64,
    /// What the latest of them was.
    pub last_error: Option<String>,
}

impl fmt::Display for DiskStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hits, layer_hits, misses, stores, read_bytes, written_bytes, .. } = self;
        write!(f, "{hits} hits, {layer_hits} in layers, {misses} misses, {stores} stores, ")?;
        write!(f, "{read_bytes} B read, {written_bytes} B written, ")?;
        let Self { evictions, evicted_bytes, reaped, waits, wait_ms, gave_up, errors, last_error, .. } = self;
        write!(f, "{evictions} evicted ({evicted_bytes} B), {reaped} reaped, ")?;
        write!(f, "{waits} waits of {wait_ms:.1} ms ({gave_up} given up), {errors} errors")?;
        last_error.iter().try_for_each(|reason| write!(f, " (last: {reason})"))
    }
}

/// As counters have it.
pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
