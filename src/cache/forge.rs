//! Spec → Cubin through the tiers.

use std::fmt;
use std::hash::Hash;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;

use super::disk::{Disk, DiskStats};
use super::key::Key;
use super::memory::Memory;
use crate::build::{self, Cubin, Preparation, Source, Toolchain};
use crate::spec::{Arch, Spec};
use crate::{Error, Result};

/// How a spec becomes CUDA.
type Render = fn(&Spec) -> Result<Source>;

/// Where a cubin came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Tier {
    /// It was in memory, or another thread was just making it.
    Memory,
    /// It was on disk.
    Disk,
    /// NVRTC compiled it now.
    Compiled,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Compiled => "compiled",
        })
    }
}

/// A cubin, where it came from, and how long that took.
#[derive(Clone, Debug)]
#[must_use]
pub struct Forged {
    cubin: Arc<Cubin>,
    tier: Tier,
    elapsed: Duration,
}

impl Forged {
    /// The cubin.
    #[must_use]
    pub fn cubin(&self) -> &Arc<Cubin> {
        &self.cubin
    }

    /// The cubin alone.
    #[must_use]
    pub fn into_cubin(self) -> Arc<Cubin> {
        self.cubin
    }

    /// Where it came from.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// How long it took to get.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }
}

/// Makes cubins, each once: looks in memory, then on disk, then compiles. Needs NVRTC's files to name the compiler in
/// the key, but opens the library only to compile. Never needs a GPU. Shared between threads by reference.
#[derive(Debug)]
pub struct Forge {
    render: Render,
    choice: Choice,
    toolchain: OnceCell<Toolchain>,
    memory: Memory<Spec, Cubin>,
    /// Of kernels that prepare weights: eight a target at most, so only single flight is asked of it.
    preparing: Memory<(Preparation, &'static str), Cubin>,
    disk: Disk,
    memory_hits: AtomicU64,
    disk_hits: AtomicU64,
    compiles: AtomicU64,
    failures: AtomicU64,
    compile_us: AtomicU64,
}

#[derive(Clone, Debug)]
enum Choice {
    Given(Box<Toolchain>),
    Find,
    FindOrInstall,
}

/// Settings of a [`Forge`].
#[derive(Debug)]
#[must_use]
pub struct ForgeBuilder {
    render: Render,
    choice: Choice,
    max_entries: usize,
    max_bytes: usize,
    disk: Option<Disk>,
}

impl ForgeBuilder {
    /// Renders with this function instead of [`build::render`]: for experiments with other kernels, and tests.
    pub fn render(mut self, render: fn(&Spec) -> Result<Source>) -> Self {
        self.render = render;
        self
    }

    /// Compiles with this toolchain.
    pub fn toolchain(mut self, toolchain: Toolchain) -> Self {
        self.choice = Choice::Given(Box::new(toolchain));
        self
    }

    /// Installs NVRTC if there is none; without this, its absence is an error.
    pub fn install_if_missing(mut self) -> Self {
        self.choice = Choice::FindOrInstall;
        self
    }

    /// Keeps at most so many cubins, of so many bytes together, in memory (default: 1024 and 256 MiB).
    pub fn memory(mut self, max_entries: usize, max_bytes: usize) -> Self {
        (self.max_entries, self.max_bytes) = (max_entries, max_bytes);
        self
    }

    /// Keeps cubins in this directory instead of the user's cache.
    pub fn disk(mut self, root: impl Into<PathBuf>) -> Self {
        self.disk = Some(Disk::open(root));
        self
    }

    /// Keeps nothing on disk.
    pub fn no_disk(mut self) -> Self {
        self.disk = Some(Disk::disabled());
        self
    }

    /// The forge. Nothing is searched for or opened yet but the cache directory.
    #[must_use]
    pub fn build(self) -> Forge {
        Forge {
            render: self.render,
            toolchain: OnceCell::new(),
            choice: self.choice,
            memory: Memory::new(self.max_entries, self.max_bytes, Cubin::bytes),
            preparing: Memory::new(usize::MAX, usize::MAX, Cubin::bytes),
            disk: self.disk.unwrap_or_else(Disk::from_env),
            memory_hits: AtomicU64::new(0),
            disk_hits: AtomicU64::new(0),
            compiles: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            compile_us: AtomicU64::new(0),
        }
    }
}

impl Forge {
    /// A forge with the default settings: the first NVRTC there is, the user's cache directory.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Settings to change.
    pub fn builder() -> ForgeBuilder {
        ForgeBuilder {
            render: build::render,
            choice: Choice::Find,
            max_entries: 1024,
            max_bytes: 256 << 20,
            disk: None,
        }
    }

    /// The cubin of `spec`. Compiles, blocking, if no tier has it; threads that ask for the same spec meanwhile wait
    /// for the one compile, others do not.
    ///
    /// # Errors
    /// Missing library, if there is no NVRTC; compile, if it refuses the source. Neither is remembered.
    pub fn cubin(&self, spec: &Spec) -> Result<Forged> {
        self.through_memory(&self.memory, spec, || {
            let source = (self.render)(spec)?;
            self.make(&source, spec.arch().target())
        })
        .map_err(|error| error.context(spec.name()))
    }

    /// The cubin of a kernel that prepares weights, through the same tiers.
    ///
    /// # Errors
    /// As [`Forge::cubin`].
    pub fn prepare_cubin(&self, preparation: Preparation, arch: &Arch) -> Result<Forged> {
        let target = arch.target();
        self.through_memory(&self.preparing, &(preparation, target), || {
            let source = preparation.render()?;
            self.make(&source, target)
        })
        .map_err(|error| error.context(preparation.symbol()))
    }

    fn through_memory<K: Clone + Eq + Hash>(
        &self,
        memory: &Memory<K, Cubin>,
        key: &K,
        make: impl FnOnce() -> Result<(Cubin, Tier)>,
    ) -> Result<Forged> {
        let start = Instant::now();
        let mut tier = Tier::Memory;
        let (cubin, _) = memory.get_or_try_compute(key, || {
            let (cubin, from) = make()?;
            tier = from;
            Ok::<_, Error>(Arc::new(cubin))
        })?;
        if tier == Tier::Memory {
            self.memory_hits.fetch_add(1, Relaxed);
        }
        Ok(Forged { cubin, tier, elapsed: start.elapsed() })
    }

    /// What the cubin of `spec` is known by in the caches. Opens no library, compiles nothing.
    ///
    /// # Errors
    /// Missing library, if there is no NVRTC.
    pub fn key(&self, spec: &Spec) -> Result<Key> {
        Key::new(self.toolchain()?, &(self.render)(spec)?, spec.arch().target())
    }

    /// The disk tier.
    #[must_use]
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// The toolchain, found on first use. Opens no library.
    ///
    /// # Errors
    /// Missing library, if there is none; looked for again at the next call.
    pub fn toolchain(&self) -> Result<&Toolchain> {
        self.toolchain.get_or_try_init(|| match &self.choice {
            Choice::Given(toolchain) => Ok(Toolchain::clone(toolchain)),
            Choice::Find => Toolchain::find(),
            Choice::FindOrInstall => Toolchain::find_or_install(),
        })
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> ForgeStats {
        let ((computing, computing_bytes), (preparing, preparing_bytes)) =
            (self.memory.usage(), self.preparing.usage());
        ForgeStats {
            memory_hits: self.memory_hits.load(Relaxed),
            disk_hits: self.disk_hits.load(Relaxed),
            compiles: self.compiles.load(Relaxed),
            failures: self.failures.load(Relaxed),
            compile_ms: self.compile_us.load(Relaxed) as f64 / 1e3,
            kept: computing + preparing,
            kept_bytes: computing_bytes + preparing_bytes,
            disk: self.disk.stats(),
        }
    }

    fn make(&self, source: &Source, target: &str) -> Result<(Cubin, Tier)> {
        let toolchain = self.toolchain()?;
        let key = Key::new(toolchain, source, target)?;
        if let Some(cubin) = self.disk.get(&key) {
            self.disk_hits.fetch_add(1, Relaxed);
            return Ok((cubin, Tier::Disk));
        }
        let start = Instant::now();
        let compiled = build::compile(toolchain, source, target);
        self.compile_us.fetch_add(u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX), Relaxed);
        let counter = if compiled.is_ok() { &self.compiles } else { &self.failures };
        counter.fetch_add(1, Relaxed);
        let cubin = compiled?;
        self.disk.put(&key, &cubin);
        Ok((cubin, Tier::Compiled))
    }
}

impl Default for Forge {
    fn default() -> Self {
        Self::new()
    }
}

/// Counters of a [`Forge`] since it was made.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ForgeStats {
    /// Cubins that were in memory or just being made by another thread.
    pub memory_hits: u64,
    /// Cubins that were on disk.
    pub disk_hits: u64,
    /// Cubins that NVRTC compiled.
    pub compiles: u64,
    /// Compiles that failed.
    pub failures: u64,
    /// Time spent compiling, all threads together, in milliseconds.
    pub compile_ms: f64,
    /// Cubins kept in memory now.
    pub kept: usize,
    /// Their bytes.
    pub kept_bytes: usize,
    /// The disk's own counters.
    pub disk: DiskStats,
}

impl fmt::Display for ForgeStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory_hits, disk_hits, compiles, failures, compile_ms, kept, kept_bytes, disk } = self;
        write!(f, "memory {memory_hits} hits ({kept} kept, {kept_bytes} B), disk {disk_hits} hits, ")?;
        write!(f, "{compiles} compiles ({failures} failed) in {compile_ms:.1} ms; disk: {disk}")
    }
}
