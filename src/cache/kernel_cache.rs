//! Spec → Cubin through the tiers.

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::Compiler;
use super::disk::{Disk, Turn};
use super::fetched::{Fetched, Tier};
use super::key::{Key, Recipe};
use super::memory::Memory;
use super::miss::Miss;
use super::pack::Pack;
use super::sealing::{Seal, Sealing};
use super::settings::{DiskBuilder, KernelCacheBuilder, Render};
use super::stats::{CacheStats, Counters};
use crate::build::{Built, Cubin, Source};
use crate::simt::Simt;
use crate::spec::{Arch, Spec};
use crate::{Error, Result};

/// Makes cubins, each once: looks in memory, in packs, on disk, in the layers below, then compiles, unless another
/// process does so already. On disk, NVRTC's files name the compiler in the key; the library is opened only to compile,
/// and where there is none, what another compiler made of the same source is taken. Never needs a GPU. Shared between
/// threads by reference.
#[derive(Debug)]
pub struct KernelCache {
    render: Render,
    compiler: Compiler,
    memory: Memory<Spec, Cubin>,
    /// Of kernels without matrix instructions: few and small, so only single flight is asked of it.
    simt: Memory<(Simt, &'static str), Cubin>,
    packs: Vec<Pack>,
    disk: Disk,
    sealing: Sealing,
    counters: Counters,
}

/// What was asked for, and how it came.
struct Found {
    cubin: Arc<Cubin>,
    tier: Tier,
    miss: Option<Miss>,
    elapsed: Duration,
}

impl Found {
    /// As the machine code of what it was asked for by: its recipe is what that renders to.
    fn of<S>(self, of: S) -> Fetched<S> {
        let Self { cubin, tier, miss, elapsed } = self;
        Fetched { built: Built::new(of, cubin), tier, miss, elapsed }
    }
}

/// What was made, and how it came to be.
struct Made {
    cubin: Cubin,
    tier: Tier,
    miss: Option<Miss>,
}

impl KernelCache {
    /// A cache with the default settings: the first NVRTC there is, the user's cache directory.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Settings to change.
    pub fn builder() -> KernelCacheBuilder {
        KernelCacheBuilder::default()
    }

    pub(super) fn with(settings: KernelCacheBuilder) -> Self {
        let KernelCacheBuilder { render, compiler, max_entries, max_bytes, packs, disk } = settings;
        Self {
            render,
            compiler,
            memory: Memory::new(max_entries, max_bytes, Cubin::bytes),
            simt: Memory::new(usize::MAX, usize::MAX, Cubin::bytes),
            packs,
            disk: disk.unwrap_or_else(DiskBuilder::user).build(),
            sealing: Sealing::default(),
            counters: Counters::default(),
        }
    }

    /// The cubin of `spec`. Compiles, blocking, if no tier has it; threads and processes that ask for the same spec
    /// meanwhile wait for the one compile, others do not.
    ///
    /// # Errors
    /// Missing library, if no tier has it and there is no NVRTC; sealed, if no tier has it and [`Seal::Refuse`] was said;
    /// compile, if NVRTC refuses the source. None of them is remembered.
    pub fn cubin(&self, spec: &Spec) -> Result<Fetched> {
        self.through_memory(&self.memory, spec, || {
            let source = (self.render)(spec)?;
            self.make(&source, spec.arch().target())
        })
        .map(|found| found.of(*spec))
        .map_err(|error| error.context(spec.name()))
    }

    /// Why the cubin of `spec` would have to be compiled now; none if some tier has it. Compiles nothing and counts
    /// nothing.
    ///
    /// # Errors
    /// Those of rendering.
    pub fn explain(&self, spec: &Spec) -> Result<Option<Miss>> {
        let recipe = Recipe::new(&(self.render)(spec)?, spec.arch().target())?;
        let packed = || self.packs.iter().any(|pack| matches!(pack.get(&recipe), Ok(Some(_))));
        if self.memory.get(spec).is_some() || packed() {
            return Ok(None);
        }
        let key = self.compiler.identity().ok().map(|compiler| Key::from_parts(recipe.clone(), compiler));
        let stored = key.as_ref().map_or_else(|| self.disk.compiler_of(&recipe).is_some(), |key| self.disk.has(key));
        Ok((!stored).then(|| self.why_not(&recipe, key.as_ref())))
    }

    /// The cubin of a kernel without matrix instructions, through the same tiers.
    ///
    /// # Errors
    /// As [`KernelCache::cubin`]; unsupported, if there is no such kernel.
    pub fn simt_cubin(&self, of: impl Into<Simt>, arch: &Arch) -> Result<Fetched<Simt>> {
        let (simt, target) = (of.into(), arch.target());
        self.through_memory(&self.simt, &(simt, target), || {
            let source = simt.render()?;
            self.make(&source, target)
        })
        .map(|found| found.of(simt))
        .map_err(|error| error.context(simt.symbol()))
    }

    fn through_memory<K: Clone + Eq + Hash>(
        &self,
        memory: &Memory<K, Cubin>,
        key: &K,
        make: impl FnOnce() -> Result<Made>,
    ) -> Result<Found> {
        let start = Instant::now();
        let (mut tier, mut miss) = (Tier::Memory, None);
        let (cubin, _) = memory.get_or_try_compute(key, || {
            let made = make()?;
            (tier, miss) = (made.tier, made.miss);
            Ok::<_, Error>(Arc::new(made.cubin))
        })?;
        if tier == Tier::Memory {
            self.counters.memory_hits.fetch_add(1, Relaxed);
        }
        Ok(Found { cubin, tier, miss, elapsed: start.elapsed() })
    }

    /// What the cubin of `spec` that [`KernelCache::cubin`] would find or make now is known by: with the compiler that made it, if
    /// it is in a pack, or on disk where there is no NVRTC; else with the compiler that would make it. What memory has may
    /// be older. Opens no library, compiles nothing, counts nothing.
    ///
    /// # Errors
    /// Missing library, if no pack and no directory has it and there is no NVRTC.
    pub fn key(&self, spec: &Spec) -> Result<Key> {
        let recipe = Recipe::new(&(self.render)(spec)?, spec.arch().target())?;
        if let Some(packed) = self.packs.iter().find_map(|pack| pack.get(&recipe).ok().flatten()) {
            return Ok(Key::from_parts(recipe, packed.provenance().toolchain()));
        }
        match self.compiler.identity() {
            Ok(compiler) => Ok(Key::from_parts(recipe, compiler)),
            Err(error) => self.disk.compiler_of(&recipe).map(|by| Key::from_parts(recipe, &by)).ok_or(error),
        }
    }

    /// The disk tier: the directory that is written to, and those below.
    #[must_use]
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// The toolchain, found on first use. Opens no library.
    ///
    /// # Errors
    /// Missing library, if there is none; looked for again at the next call.
    #[cfg(feature = "compile")]
    pub fn toolchain(&self) -> Result<&crate::build::Toolchain> {
        self.compiler.toolchain()
    }

    /// What becomes of a compile from now on. Kernels in memory, packs and directories are served whatever is said here;
    /// a compile that is under way goes on.
    pub fn seal(&self, seal: Seal) {
        self.sealing.set(seal);
    }

    /// The packs, in the order in which they are asked.
    #[must_use]
    pub fn packs(&self) -> &[Pack] {
        &self.packs
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        let (computing, simt) = (self.memory.usage(), self.simt.usage());
        let sealed = self.sealing.stats();
        self.counters.snapshot(sealed, (computing.0 + simt.0, computing.1 + simt.1), self.disk.stats())
    }

    fn make(&self, source: &Source, target: &str) -> Result<Made> {
        let recipe = Recipe::new(source, target)?;
        let found = |cubin, tier| Ok(Made { cubin, tier, miss: None });
        // First, so that the same kernels are served wherever the pack is, whatever lies on the disk there.
        if let Some(cubin) = self.packed(&recipe) {
            return found(cubin, Tier::Pack);
        }
        let compiler = match self.compiler.identity() {
            Ok(compiler) => compiler,
            // Nothing newer can be had: another compiler's code of the same source is as right.
            Err(error) => {
                return match self.disk.find_any(&recipe) {
                    Some((cubin, level)) => found(cubin, level.into()),
                    None => Err(error.context(self.why_not(&recipe, None).to_string())),
                };
            }
        };
        let key = Key::from_parts(recipe, compiler);
        if let Some((cubin, level)) = self.disk.find(&key) {
            return found(cubin, level.into());
        }
        let miss = self.why_not(key.recipe(), Some(&key));
        self.sealing.check(source.name(), &miss)?;
        // The lock is held until the entry is stored, or the compile has failed.
        let turn = match self.disk.turn(&key) {
            Turn::Found(cubin) => return found(*cubin, Tier::Disk),
            turn @ Turn::Ours { .. } => turn,
        };
        let span = tracing::info_span!("compile", kernel = source.name(), target, %miss);
        let _compiling = span.entered();
        tracing::info!("compiling");
        let cubin = self.compile(source, target)?;
        self.disk.store(&key, &cubin);
        drop(turn);
        self.disk.tidy();
        Ok(Made { cubin, tier: Tier::Compiled, miss: Some(miss) })
    }

    fn compile(&self, source: &Source, target: &str) -> Result<Cubin> {
        let start = Instant::now();
        let compiled = self.compiler.compile(source, target);
        self.counters.compiled(start.elapsed(), compiled.as_ref().ok());
        compiled
    }

    /// The kernel of `recipe` from the first pack that has it whole.
    fn packed(&self, recipe: &Recipe) -> Option<Cubin> {
        let cubin = self.packs.iter().find_map(|pack| {
            pack.get(recipe).unwrap_or_else(|error| {
                tracing::warn!(%error, "kernel pack: going on without");
                self.counters.pack_errors.fetch_add(1, Relaxed);
                None
            })
        })?;
        self.counters.pack_hits.fetch_add(1, Relaxed);
        Some(cubin)
    }

    fn why_not(&self, recipe: &Recipe, key: Option<&Key>) -> Miss {
        key.and_then(|key| self.disk.unusable(key)).unwrap_or_else(|| {
            let packed = self.packs.iter().flat_map(|pack| pack.kin_of(recipe));
            Miss::nearest(recipe, key.map(Key::toolchain), self.disk.kin_of(recipe).chain(packed))
        })
    }
}

impl Default for KernelCache {
    fn default() -> Self {
        Self::new()
    }
}
