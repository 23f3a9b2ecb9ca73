//! Cubins on disk: one verified file an entry, shared by any number of processes.
//!
//! A file appears whole or not at all (temporary name, then rename) and ends with a digest of itself, which catches
//! what a crash of the machine can leave. So nothing is flushed, and no lock is needed to be right: locks only see to
//! it that a kernel is compiled once. Where they do not work, the worst case is a compile.

mod turn;

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::key::{Key, Recipe};
use super::miss::Miss;
use super::root::{Found, Kin, Root};
use super::settings::DiskBuilder;
use super::shard::Trouble;
use super::stats::{DiskCounters, DiskStats, micros};
use super::sweep::{self, Limits, Swept};
use crate::build::{Cubin, Provenance};

pub(super) use turn::Turn;

/// Directories of cubins: at most one that is written to, and any number below it that are only read.
pub struct Disk {
    root: Option<Root>,
    layers: Vec<Root>,
    /// What was named and cannot be used.
    refused: Vec<(PathBuf, String)>,
    limits: Limits,
    /// How long a wait may be now, in microseconds.
    patience: AtomicU64,
    copy_up: bool,
    /// Bytes that may be written until the next sweep.
    room: AtomicU64,
    counters: DiskCounters,
    last_error: Mutex<Option<String>>,
    /// What was logged of whole directories, and is not said again of each file in them.
    told: Mutex<HashSet<(&'static str, PathBuf)>>,
}

/// Which directory had an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Root,
    Layer,
}

impl Disk {
    /// The user's own cache and what lies below it, as the environment says: see [`DiskBuilder::user`].
    #[must_use]
    pub fn from_env() -> Self {
        DiskBuilder::user().build()
    }

    /// The cache in `root`, which is made if need be. A directory that others could write to is not used: what is in
    /// it would be run on the GPU. That, too, is a log line and an uncached process, no error.
    #[must_use]
    pub fn open(root: impl Into<PathBuf>) -> Self {
        Self::builder().root(root).build()
    }

    /// No cache: every look-up misses, nothing is stored.
    #[must_use]
    pub fn disabled() -> Self {
        Self::builder().build()
    }

    /// Settings to change; no directory yet.
    pub fn builder() -> DiskBuilder {
        DiskBuilder::default()
    }

    pub(super) fn with(settings: DiskBuilder) -> Self {
        let DiskBuilder { root, layers, max_bytes, grace, wait_at_most, copy_up, nowhere } = settings;
        let mut disk = Self {
            root: None,
            layers: Vec::new(),
            refused: Vec::new(),
            limits: Limits { max_bytes, grace },
            patience: AtomicU64::new(micros(wait_at_most)),
            copy_up,
            room: AtomicU64::new(0),
            counters: DiskCounters::default(),
            last_error: Mutex::default(),
            told: Mutex::default(),
        };
        let (mut refused, mut layered) = (Vec::new(), Vec::new());
        match root.map(Root::own) {
            Some(Ok(root)) => disk.root = Some(root),
            Some(Err(trouble)) => refused.push(trouble),
            None => refused.extend(nowhere.map(|why| Trouble::of(PathBuf::from("cubins"), why))),
        }
        for layer in layers.into_iter().map(Root::layer) {
            match layer {
                Ok(layer) => layered.push(layer),
                Err(trouble) => refused.push(trouble),
            }
        }
        refused.iter().for_each(|trouble| disk.note("opening", trouble));
        let refused = refused.into_iter().map(|trouble| (trouble.path, trouble.why)).collect();
        Self { layers: layered, refused, ..disk }
    }

    /// The directory that is written to, if there is one.
    #[must_use]
    pub fn root(&self) -> Option<&Path> {
        self.root.as_ref().map(Root::dir)
    }

    /// The directories below it, in the order in which they are looked up.
    pub fn layers(&self) -> impl Iterator<Item = &Path> {
        self.layers.iter().map(Root::dir)
    }

    /// Directories that were named and cannot be used, each with the reason.
    #[must_use]
    pub fn refused(&self) -> &[(PathBuf, String)] {
        &self.refused
    }

    /// The file that holds, or would hold, the entry of `key`.
    #[must_use]
    pub fn path_of(&self, key: &Key) -> Option<PathBuf> {
        self.root.as_ref().map(|root| root.path_of(key))
    }

    /// The entry of `key`. Whatever is wrong with it, it is a miss, and the reason is logged.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Cubin> {
        self.find(key).map(|(cubin, _)| cubin)
    }

    /// Stores the entry of `key`, replacing what is there, and evicts if that was too much. A failure is logged.
    ///
    /// # Safety
    /// A cache with this directory takes it for machine code of what renders to the key's recipe:
    /// [`Built::unproven`](crate::build::Built::unproven) says what has to hold of it.
    pub unsafe fn put(&self, key: &Key, cubin: &Cubin) {
        self.store(key, cubin);
        self.tidy();
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> DiskStats {
        let last_error = self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.counters.snapshot(last_error)
    }

    /// The entry of `key`, and where it was.
    pub(super) fn find(&self, key: &Key) -> Option<(Cubin, Level)> {
        let own = self.root.iter().find_map(|root| Some((self.load(root, key, true)?, Level::Root)));
        let below = || self.layers.iter().find_map(|root| Some((self.load(root, key, false)?, Level::Layer)));
        match own.or_else(below) {
            Some((found, level)) => {
                if self.copy_up && level == Level::Layer {
                    self.store(key, &found.cubin);
                    self.tidy();
                }
                Some((self.hit(found.bytes, level, found.cubin), level))
            }
            None => {
                // Where nothing can be, nothing is missed.
                self.counters.misses.fetch_add(u64::from(self.roots().next().is_some()), Relaxed);
                None
            }
        }
    }

    /// An entry of `recipe`, whoever compiled it: for those who have no compiler of their own. If there are several,
    /// always the same one.
    pub(super) fn find_any(&self, recipe: &Recipe) -> Option<(Cubin, Level)> {
        let own = self.root.iter().map(|root| (root, Level::Root));
        let below = self.layers.iter().map(|root| (root, Level::Layer));
        let (kin, level) = own.chain(below).find_map(|(root, level)| {
            let mut kin = root.kin_of(recipe).filter_map(|kin| self.noted("reading", kin));
            kin.find(|kin| is_of(kin, recipe)).map(|kin| (kin, level))
        })?;
        Some((self.hit(kin.bytes, level, kin.entry.cubin), level))
    }

    /// Whether there is a usable entry of `key`; counts nothing.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.roots().any(|root| matches!(root.load(key, false), Ok(Some(_))))
    }

    /// Who compiled the entry of `recipe` that [`Disk::find_any`] gives, if there is a usable one; counts nothing.
    pub(super) fn compiler_of(&self, recipe: &Recipe) -> Option<String> {
        let mut kin = self.roots().flat_map(|root| root.kin_of(recipe).flatten());
        Some(kin.find(|kin| is_of(kin, recipe))?.entry.cubin.provenance().toolchain().to_owned())
    }

    /// What is wrong with the entry of `key`, if it is there and cannot be used.
    pub(super) fn unusable(&self, key: &Key) -> Option<Miss> {
        self.roots().find_map(|root| {
            let Trouble { path, why, .. } = root.load(key, false).err()?;
            Some(Miss::Unusable { place: path.display().to_string(), reason: why })
        })
    }

    /// Where kernels of the name and target of `recipe` are, and what they were made from.
    pub(super) fn kin_of(&self, recipe: &Recipe) -> impl Iterator<Item = (String, Provenance)> {
        let kin = self.roots().flat_map(|root| root.kin_of(recipe).flatten());
        kin.map(|kin| (kin.path.display().to_string(), kin.entry.cubin.provenance().clone()))
    }

    /// Stores the entry of `key`, replacing what is there. A failure is logged.
    pub(super) fn store(&self, key: &Key, cubin: &Cubin) {
        let Some(root) = &self.root else { return };
        if let Some(bytes) = self.noted("writing", root.store(key, cubin)) {
            self.counters.stores.fetch_add(1, Relaxed);
            self.counters.written_bytes.fetch_add(bytes, Relaxed);
            let less = |room: u64| Some(room.saturating_sub(bytes));
            let _ = self.room.fetch_update(Relaxed, Relaxed, less);
        }
    }

    /// Evicts, if this process has written so much that it may be time.
    pub(super) fn tidy(&self) {
        let Some(root) = &self.root else { return };
        if self.room.load(Relaxed) > 0 {
            return;
        }
        match sweep::sweep(root.dir(), self.limits) {
            Ok(Some(Swept { kept_bytes, evicted, evicted_bytes, reaped })) => {
                self.room.store(self.limits.until_next(kept_bytes), Relaxed);
                self.counters.evictions.fetch_add(evicted, Relaxed);
                self.counters.evicted_bytes.fetch_add(evicted_bytes, Relaxed);
                self.counters.reaped.fetch_add(reaped, Relaxed);
                tracing::debug!(root = %root.dir().display(), kept_bytes, evicted, reaped, "cubin cache: swept");
            }
            // Another process is at it.
            Ok(None) => self.room.store(self.limits.until_next(self.limits.max_bytes), Relaxed),
            Err(error) => {
                self.room.store(self.limits.until_next(self.limits.max_bytes), Relaxed);
                self.note("sweeping", &Trouble::of(root.dir().to_owned(), error));
            }
        }
    }

    fn roots(&self) -> impl Iterator<Item = &Root> {
        self.root.iter().chain(&self.layers)
    }

    fn load(&self, root: &Root, key: &Key, touch: bool) -> Option<Found> {
        self.noted("reading", root.load(key, touch)).flatten()
    }

    fn hit(&self, bytes: u64, level: Level, cubin: Cubin) -> Cubin {
        let hits = if level == Level::Root { &self.counters.hits } else { &self.counters.layer_hits };
        hits.fetch_add(1, Relaxed);
        self.counters.read_bytes.fetch_add(bytes, Relaxed);
        cubin
    }

    fn noted<T>(&self, doing: &'static str, result: Result<T, Trouble>) -> Option<T> {
        result.map_err(|trouble| self.note(doing, &trouble)).ok()
    }

    fn note(&self, doing: &'static str, trouble: &Trouble) {
        let Trouble { path, why, .. } = trouble;
        if self.is_news(doing, trouble) {
            tracing::warn!(path = %path.display(), why, "cubin cache: {doing} failed, going on without");
        }
        self.counters.errors.fetch_add(1, Relaxed);
        let reason = format!("{doing} {}: {why}", path.display());
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
    }

    /// Whether this is to be logged: always of a file, once of a directory.
    fn is_news(&self, doing: &'static str, trouble: &Trouble) -> bool {
        let Some(dir) = &trouble.dir else { return true };
        self.told.lock().unwrap_or_else(PoisonError::into_inner).insert((doing, dir.clone()))
    }
}

/// Whether an entry was made by `recipe`: a key begins with its recipe.
fn is_of(kin: &Kin, recipe: &Recipe) -> bool {
    kin.entry.key.starts_with(recipe.text().as_bytes())
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layers: Vec<_> = self.layers().collect();
        f.debug_struct("Disk")
            .field("root", &self.root())
            .field("layers", &layers)
            .field("stats", &self.stats())
            .finish()
    }
}
