//! Installs NVIDIA's wheel of NVRTC into the user's cache directory.
//!
//! ```text
//! HOME/13.0.88               the wheel, unpacked: a site of Python packages
//! HOME/.installing.lock      while a process installs
//! HOME/.installing-XXXX/     what it has so far: `unpacked`, what pip needs meanwhile, and `lock` while it lives
//! ```

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::pip::{self, Failure};
use super::{Toolchain, Unfit, wheel};
use crate::lock::Lock;
use crate::trust;
use crate::{Error, Result};

/// The release that is installed: the compiler of the CUDA 13.0 toolkit, so that both give the same machine code.
const VERSION: &str = "13.0.88";
/// SHA-256 of its wheels for x86-64 and aarch64: whatever index pip is set to, these files and no others are unpacked.
const HASHES: [&str; 2] = [
    "ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575",
    "d27f20a0ca67a4bb34268a5e951033496c5b74870b868bacd046b1b8e0c3267b",
];
/// Held by the process that installs.
const LOCK: &str = ".installing.lock";
/// What unfinished directories begin with, and what is held in them by the process that is at it.
const UNFINISHED: &str = ".installing-";
const ALIVE: &str = "lock";
/// Where file systems have no locks, what is older than this belongs to a process that died.
const STALE_AFTER: Duration = Duration::from_secs(3600);
/// Between two looks at a lock that another process holds.
const PAUSE: Duration = Duration::from_millis(100);

/// Where the wheel is, or will be, below `home`.
pub(super) fn site(home: &Path) -> PathBuf {
    home.join(VERSION)
}

/// The NVRTC that was installed below `home`, if there is one; why not, if it is not whole or others than its owner can
/// write to it.
pub(super) fn installed(home: &Path) -> Result<Option<Toolchain>, Unfit> {
    in_site(home, &site(home))
}

fn in_site(home: &Path, site: &Path) -> Result<Option<Toolchain>, Unfit> {
    let library = wheel::library_dirs(site).iter().find_map(|dir| wheel::library_in(dir));
    library.map(|library| good(home, &library)).transpose()
}

fn good(home: &Path, library: &Path) -> Result<Toolchain, Unfit> {
    let found = Toolchain::identify(library, "installed")?;
    // The directories are this crate's own: nobody else writes to them, not even a group.
    let top = home.canonicalize().unwrap_or_else(|_| home.to_owned());
    for file in [Some(found.library()), found.builtins()].into_iter().flatten() {
        trust::check_below(&top, file).map_err(|untrusted| Unfit::untrusted(file, &untrusted))?;
    }
    found.openable()?;
    Ok(found)
}

/// Installs the wheel below `home`, unless another process does so first, and replaces what is there and not good.
///
/// The wheel is unpacked under another name, looked at, and renamed, so no process ever sees half of it. One process at a
/// time: the others wait for it, but no longer than it may take.
pub(super) fn install(home: &Path, pythons: &[PathBuf], limit: Duration) -> Result<Toolchain> {
    let site = site(home);
    let cannot = |Failure { why, remedy }: Failure| {
        let by_hand = || {
            let command = format!("pip install --target {} nvidia-cuda-nvrtc=={VERSION}", site.display());
            format!("run `{command}` where there is a network")
        };
        let remedy = remedy.map_or_else(by_hand, str::to_owned);
        Error::missing_library(format!(
            "NVRTC was not found and could not be installed: {why}; remedy: {remedy}, or set WARPSMITH_NVRTC to an \
             existing libnvrtc.so.13"
        ))
    };
    let python = pythons.first().ok_or_else(|| {
        cannot(Failure { why: "there is no python3 on PATH to run pip with".to_owned(), remedy: Some(NO_PYTHON) })
    })?;
    make_home(home).map_err(cannot)?;
    let _turn = turn(home, limit);
    // Another process may have done it while this one waited.
    if let Ok(Some(found)) = installed(home) {
        return Ok(found);
    }
    reap(home);
    let work = Work::begin(home).map_err(|why| cannot(Failure { why, remedy: Some(OTHER_PLACE) }))?;
    tracing::info!(version = VERSION, into = %site.display(), "installing NVRTC with pip");
    pip::install(python, &work.requirements(), &work.unpacked(), work.dir.path(), limit).map_err(cannot)?;
    let other = |why| cannot(Failure { why, remedy: None });
    finish(&work.unpacked()).map_err(|error| other(format!("{}: {error}", work.unpacked().display())))?;
    match in_site(home, &work.unpacked()) {
        Ok(Some(_)) => {}
        Ok(None) => return Err(other(format!("pip of {} put no NVRTC into {}", python.display(), site.display()))),
        Err(unfit) => {
            return Err(other(format!("what pip of {} unpacked is no good: {}", python.display(), unfit.why)));
        }
    }
    // Where locks do not work, another process may have come first; what it has is as good.
    if let Ok(Some(found)) = installed(home) {
        return Ok(found);
    }
    let replaced = work.replace(&site);
    match (installed(home), replaced) {
        (Ok(Some(found)), _) => Ok(found),
        (Err(unfit), _) => Err(other(unfit.why)),
        (Ok(None), Err(error)) => Err(other(format!("{}: {error}", site.display()))),
        (Ok(None), Ok(())) => Err(other(format!("{} is gone again", site.display()))),
    }
}

const NO_PYTHON: &str = "put a python3 that has pip on PATH";
const OTHER_PLACE: &str = "set WARPSMITH_CACHE_DIR to a directory that you can write to and nobody else can";
const NOT_OURS: &str =
    "let only you write there (`chmod go-w`), or set WARPSMITH_CACHE_DIR to a directory where that is so";

/// Makes the directory; says why nothing may be installed there.
fn make_home(home: &Path) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure { why: format!("{}: {error}", home.display()), remedy: Some(OTHER_PLACE) };
    trust::make_dir(home).map_err(failed)?;
    let real = home.canonicalize().map_err(failed)?;
    let checked = trust::check_path(&real).and_then(|()| trust::check_below(&real, &real));
    checked.map_err(|untrusted| Failure { why: untrusted.to_string(), remedy: Some(NOT_OURS) })
}

/// This process's turn; none, if that is waited for too long, or where there are no locks.
fn turn(home: &Path, limit: Duration) -> Option<Lock> {
    let path = home.join(LOCK);
    let start = Instant::now();
    loop {
        match Lock::try_take(&path) {
            Ok(Some(lock)) => return Some(lock),
            Ok(None) if start.elapsed() < limit => std::thread::sleep(PAUSE),
            Ok(None) => {
                tracing::warn!(lock = %path.display(), "another process takes too long, installing NVRTC as well");
                return None;
            }
            Err(error) => {
                tracing::debug!(lock = %path.display(), %error, "no lock, installing NVRTC without");
                return None;
            }
        }
    }
}

/// Removes what processes left that died while they installed.
fn reap(home: &Path) {
    for entry in home.read_dir().into_iter().flatten().flatten() {
        let dir = entry.path();
        let unfinished = entry.file_name().to_str().is_some_and(|name| name.starts_with(UNFINISHED));
        if unfinished && entry.file_type().is_ok_and(|kind| kind.is_dir()) && is_left(&dir) {
            match fs::remove_dir_all(&dir) {
                Ok(()) => tracing::info!(dir = %dir.display(), "removed what an interrupted install left"),
                Err(error) => tracing::warn!(dir = %dir.display(), %error, "what an interrupted install left stays"),
            }
        }
    }
}

/// Whether nobody is at it any more.
fn is_left(dir: &Path) -> bool {
    let lock = dir.join(ALIVE);
    let held = if lock.exists() { Lock::try_take(&lock).ok() } else { None };
    // Without a lock its process died at once, is about to make it, or cannot.
    let age = || fs::symlink_metadata(dir).and_then(|about| about.modified()).ok()?.elapsed().ok();
    held.map_or_else(|| age().is_some_and(|age| age > STALE_AFTER), |lock| lock.is_some())
}

/// A directory that a wheel is unpacked in; it is removed when this goes.
struct Work {
    dir: tempfile::TempDir,
    /// Says that somebody is at it.
    _alive: Option<Lock>,
}

impl Work {
    fn begin(home: &Path) -> Result<Self, String> {
        let failed = |error: io::Error| format!("{}: {error}", home.display());
        let private = Permissions::from_mode(0o700);
        let dir = tempfile::Builder::new().prefix(UNFINISHED).permissions(private).tempdir_in(home).map_err(failed)?;
        let alive = Lock::try_take(&dir.path().join(ALIVE)).ok().flatten();
        let work = Self { dir, _alive: alive };
        trust::make_dir(&work.unpacked()).map_err(failed)?;
        let hashes: String = HASHES.iter().map(|hash| format!(" --hash=sha256:{hash}")).collect();
        fs::write(work.requirements(), format!("nvidia-cuda-nvrtc=={VERSION}{hashes}\n")).map_err(failed)?;
        Ok(work)
    }

    fn unpacked(&self) -> PathBuf {
        self.dir.path().join("unpacked")
    }

    fn requirements(&self) -> PathBuf {
        self.dir.path().join("requirements.txt")
    }

    /// Puts what was unpacked where it belongs; what is there goes with this.
    fn replace(&self, site: &Path) -> io::Result<()> {
        match fs::rename(site, self.dir.path().join("replaced")) {
            Ok(()) => tracing::info!(site = %site.display(), "what was there is not whole, or not safe: replaced"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        fs::rename(self.unpacked(), site)
    }
}

/// Makes of what pip unpacked what is kept: without the twins, which are half of its 228 MB and never used; for nobody
/// else to write to, whatever the umask; and on the disk, so that a crash of the machine leaves it whole or not at all.
fn finish(unpacked: &Path) -> io::Result<()> {
    let about = fs::symlink_metadata(unpacked)?;
    if about.is_dir() {
        unpacked.read_dir()?.try_for_each(|entry| finish(&entry?.path()))?;
    } else if !about.is_file() {
        return Ok(());
    } else if unpacked.to_string_lossy().contains(".alt.so") {
        return fs::remove_file(unpacked);
    }
    let file = File::open(unpacked)?;
    file.set_permissions(Permissions::from_mode(about.permissions().mode() & !0o022))?;
    file.sync_all()
}
