//! Cubins on disk: one verified file an entry, shared by any number of processes.
//!
//! A file appears whole or not at all (temporary name, then rename) and ends with a digest of itself, which catches
//! what a crash of the machine can leave. So nothing is locked and nothing is flushed: the worst case is a compile.

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use super::entry;
use super::key::Key;
use crate::build::{Cubin, user_cache_dir};

/// A directory of cubins, or the absence of one.
pub struct Disk {
    root: Option<PathBuf>,
    hits: AtomicU64,
    misses: AtomicU64,
    stores: AtomicU64,
    errors: AtomicU64,
    last_error: Mutex<Option<String>>,
}

/// Counters of a [`Disk`] since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskStats {
    /// Entries found and verified.
    pub hits: u64,
    /// Entries that were not there or not to be trusted.
    pub misses: u64,
    /// Entries written.
    pub stores: u64,
    /// Reads, writes and checks that went wrong; each was logged.
    pub errors: u64,
    /// What the latest of them was.
    pub last_error: Option<String>,
}

impl fmt::Display for DiskStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hits, misses, stores, errors, last_error } = self;
        write!(f, "{hits} hits, {misses} misses, {stores} stores, {errors} errors")?;
        last_error.iter().try_for_each(|reason| write!(f, " (last: {reason})"))
    }
}

impl Disk {
    /// The user's own cache: `cubins` in `$WARPSMITH_CACHE_DIR`, else in `$XDG_CACHE_HOME/warpsmith`, else in
    /// `~/.cache/warpsmith`. Disabled by `WARPSMITH_CACHE=off`, or when no variable says where it should be.
    #[must_use]
    pub fn from_env() -> Self {
        if std::env::var_os("WARPSMITH_CACHE").is_some_and(|value| value == "off") {
            return Self::disabled();
        }
        match user_cache_dir(|name| std::env::var_os(name)) {
            Some(dir) => Self::open(dir.join("cubins")),
            None => {
                let disk = Self::disabled();
                disk.note("opening", Path::new("cubins"), "no WARPSMITH_CACHE_DIR, XDG_CACHE_HOME or HOME");
                disk
            }
        }
    }

    /// The cache in `root`, which is made if need be. A directory that others could write to is not used: what is in
    /// it would be run on the GPU. That, too, is a log line and an uncached process, no error.
    #[must_use]
    pub fn open(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        let mut disk = Self::disabled();
        match make_dir(&root).map_err(|error| error.to_string()).and_then(|()| check_owner(&root)) {
            Ok(()) => disk.root = Some(root),
            Err(why) => disk.note("opening", &root, &why),
        }
        disk
    }

    /// No cache: every look-up misses, nothing is stored.
    #[must_use]
    pub fn disabled() -> Self {
        Self {
            root: None,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            stores: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            last_error: Mutex::new(None),
        }
    }

    /// The directory, if the cache is in use.
    #[must_use]
    pub fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// The file that holds, or would hold, the entry of `key`.
    #[must_use]
    pub fn path_of(&self, key: &Key) -> Option<PathBuf> {
        let name = key.hash().to_string();
        self.root.as_ref().map(|root| root.join(&name[..2]).join(name))
    }

    /// The entry of `key`. Whatever is wrong with it, it is a miss, and the reason is logged.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Cubin> {
        let path = self.path_of(key)?;
        let found = match read(&path) {
            Ok(bytes) => entry::decode(key, &bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.misses.fetch_add(1, Relaxed);
                return None;
            }
            Err(error) => Err(error.to_string()),
        };
        match found {
            Ok(cubin) => {
                self.hits.fetch_add(1, Relaxed);
                Some(cubin)
            }
            Err(why) => {
                self.misses.fetch_add(1, Relaxed);
                self.note("reading", &path, &why);
                None
            }
        }
    }

    /// Stores the entry of `key`, replacing what is there. A failure is logged.
    pub fn put(&self, key: &Key, cubin: &Cubin) {
        let Some(path) = self.path_of(key) else { return };
        match entry::encode(key, cubin).and_then(|bytes| write(&path, &bytes).map_err(|error| error.to_string())) {
            Ok(()) => {
                self.stores.fetch_add(1, Relaxed);
            }
            Err(why) => self.note("writing", &path, &why),
        }
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> DiskStats {
        DiskStats {
            hits: self.hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            stores: self.stores.load(Relaxed),
            errors: self.errors.load(Relaxed),
            last_error: self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    fn note(&self, doing: &str, path: &Path, why: &str) {
        tracing::warn!(path = %path.display(), why, "cubin cache: {doing} failed, going on without");
        self.errors.fetch_add(1, Relaxed);
        let reason = format!("{doing} {}: {why}", path.display());
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("root", &self.root).field("stats", &self.stats()).finish()
    }
}

fn make_dir(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Refuses a directory that someone else could put an entry into.
fn check_owner(root: &Path) -> Result<(), String> {
    let root = fs::metadata(root).map_err(|error| error.to_string())?;
    // A process's own entry in /proc belongs to the user it acts as; root's directories are as good as one's own.
    let me = fs::metadata("/proc/self").map_err(|error| format!("/proc/self: {error}"))?.uid();
    if root.uid() != me && root.uid() != 0 {
        return Err(format!("the directory belongs to user {}, this process to {me}", root.uid()));
    }
    if root.mode() & 0o022 != 0 {
        return Err(format!("the directory's mode {:o} lets others write to it", root.mode() & 0o7777));
    }
    Ok(())
}

/// The whole file; only a regular one, since opening a pipe would wait.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    fs::read(path)
}

/// Writes under a temporary name beside `path` (removed on any failure), then renames.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().unwrap_or(path);
    make_dir(dir)?;
    let mut file = tempfile::Builder::new().prefix(".writing-").tempfile_in(dir)?;
    file.write_all(bytes)?;
    file.persist(path)?;
    Ok(())
}
