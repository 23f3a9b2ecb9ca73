//! The counters of a forge.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde::Serialize;

use super::disk::DiskStats;
use crate::build::Cubin;

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
        self.compile_us.fetch_add(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX), Relaxed);
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
    pub fn snapshot(&self, (kept, kept_bytes): (usize, usize), disk: DiskStats) -> ForgeStats {
        ForgeStats {
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
            disk,
        }
    }
}

/// Counters of a [`Forge`](super::Forge) since it was made.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ForgeStats {
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
    /// The disk's own counters.
    pub disk: DiskStats,
}

impl fmt::Display for ForgeStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory_hits, pack_hits, pack_errors, kept, kept_bytes, disk, .. } = self;
        write!(f, "memory {memory_hits} hits ({kept} kept, {kept_bytes} B), ")?;
        write!(f, "pack {pack_hits} hits ({pack_errors} damaged), ")?;
        let Self { compiles, failures, compile_ms, compiled_bytes, .. } = self;
        write!(f, "{compiles} compiles ({failures} failed) to {compiled_bytes} B in {compile_ms:.1} ms; disk: {disk}")
    }
}
