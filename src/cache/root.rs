//! One directory of entries: where they lie, how one is read, how one is written.
//!
//! ```text
//! ROOT/ab/ab0123456789abcd-HASH        an entry: kin (name and target), then the hash of its key
//! ROOT/ab/ab0123456789abcd-HASH.lock   while a process compiles it
//! ROOT/ab/.writing-XXXXXX              while a process writes one
//! ROOT/.sweeping                       while a process evicts
//! ```

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::entry::{self, Entry};
use super::key::{Key, Recipe};
use crate::build::Cubin;
use crate::trust;

/// Temporary files begin so.
pub(super) const WRITING: &str = ".writing-";
/// Lock files end so.
pub(super) const LOCKED: &str = ".lock";
/// A use is written down this often at most.
const TOUCH_AFTER: Duration = Duration::from_secs(3600);

/// A directory of entries that may be read.
#[derive(Debug)]
pub(super) struct Root {
    dir: PathBuf,
}

/// A cubin that was found, and the size of its entry.
pub(super) struct Found {
    pub cubin: Cubin,
    pub bytes: u64,
}

/// The file and what was wrong with it.
pub(super) type Trouble = (PathBuf, String);

/// What tells a file from the one that replaces it: none while there is no file.
pub(super) type Stamp = Option<(u64, SystemTime)>;

impl Root {
    /// A directory that is made if need be and belongs to the user, or to root; no one else may write to it.
    pub fn own(dir: PathBuf) -> Result<Self, Trouble> {
        let opened = make_dir(&dir).map_err(|error| error.to_string()).and_then(|()| check_owner(&dir));
        match opened.and_then(|()| check_mode(&dir)) {
            Ok(()) => Ok(Self { dir }),
            Err(why) => Err((dir, why)),
        }
    }

    /// A directory that is only read. Whoever named it trusts its owner, whoever that is, but not everyone.
    pub fn layer(dir: PathBuf) -> Result<Self, Trouble> {
        match check_mode(&dir) {
            Ok(()) => Ok(Self { dir }),
            Err(why) => Err((dir, why)),
        }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn path_of(&self, key: &Key) -> PathBuf {
        self.shard(key.recipe()).join(format!("{}-{}", key.recipe().kin(), key.hash()))
    }

    fn shard(&self, recipe: &Recipe) -> PathBuf {
        self.dir.join(&recipe.kin()[..2])
    }

    /// The entry of `key`; none if there is no file. With `touch`, its use is written down.
    pub fn load(&self, key: &Key, touch: bool) -> Result<Option<Found>, Trouble> {
        let path = self.path_of(key);
        let Some(bytes) = read(&path, touch).map_err(|error| (path.clone(), error.to_string()))? else {
            return Ok(None);
        };
        let cubin = entry::decode_of(key, &bytes).map_err(|why| (path, why))?;
        Ok(Some(Found { cubin, bytes: bytes.len() as u64 }))
    }

    /// Every whole entry of this name and target, whatever else differs.
    pub fn kin_of(&self, recipe: &Recipe) -> impl Iterator<Item = (PathBuf, Entry, u64)> {
        let prefix = format!("{}-", recipe.kin());
        let files = self.shard(recipe).read_dir().into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = files
            .filter(|file| file.file_name().to_str().is_some_and(|name| name.starts_with(&prefix) && is_entry(name)))
            .map(|file| file.path())
            .collect();
        // The order of a directory is no order.
        paths.sort();
        paths.into_iter().filter_map(|path| {
            let bytes = read(&path, false).ok().flatten()?;
            let entry = entry::decode(&bytes).ok()?;
            Some((path, entry, bytes.len() as u64))
        })
    }

    /// Writes the entry of `key` under a temporary name (removed on any failure), then renames. Gives its size.
    pub fn store(&self, key: &Key, cubin: &Cubin) -> Result<u64, Trouble> {
        let path = self.path_of(key);
        let bytes = entry::encode(key, cubin).map_err(|why| (path.clone(), why))?;
        self.write(&path, &bytes).map_err(|error| (path, error.to_string()))?;
        Ok(bytes.len() as u64)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let shard = path.parent().unwrap_or(&self.dir);
        make_dir(shard)?;
        let mut file = tempfile::Builder::new().prefix(WRITING).tempfile_in(shard)?;
        file.write_all(bytes)?;
        file.persist(path)?;
        Ok(())
    }

    /// Where the lock of a key is, in a directory that is made if need be.
    pub fn lock_of(&self, key: &Key) -> io::Result<PathBuf> {
        make_dir(&self.shard(key.recipe()))?;
        let mut path = self.path_of(key).into_os_string();
        path.push(LOCKED);
        Ok(path.into())
    }

    pub fn stamp(&self, key: &Key) -> Stamp {
        let about = fs::metadata(self.path_of(key)).ok()?;
        Some((about.ino(), about.modified().ok()?))
    }
}

/// Whether a file of this name is an entry, of whatever version.
pub(super) fn is_entry(name: &str) -> bool {
    name.len() >= 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// How long ago; a time in the future counts as now, since a clock has been moved.
pub(super) fn age(modified: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(modified).unwrap_or_default()
}

/// The whole file, none if there is none; only a regular one, since opening a pipe would wait. It may be removed or
/// replaced meanwhile: what was opened is read.
fn read(path: &Path, touch: bool) -> io::Result<Option<Vec<u8>>> {
    let open = || {
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        File::open(path)
    };
    let mut file = match open() {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    if touch {
        touch_now(&file);
    }
    Ok(Some(bytes))
}

/// Writes the use down, if that was not done lately. Where it may not be, the entry only looks older than it is.
fn touch_now(file: &File) {
    let now = SystemTime::now();
    let modified = file.metadata().and_then(|about| about.modified());
    if modified.is_ok_and(|modified| modified > now || age(modified, now) > TOUCH_AFTER) {
        let _ = file.set_modified(now);
    }
}

fn make_dir(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Refuses a directory of another user, who could put an entry into it.
fn check_owner(dir: &Path) -> Result<(), String> {
    trust::check_owner(&fs::metadata(dir).map_err(|error| error.to_string())?)
}

/// Refuses a directory that more than its owner can write to.
fn check_mode(dir: &Path) -> Result<(), String> {
    let about = fs::metadata(dir).map_err(|error| error.to_string())?;
    if !about.is_dir() {
        return Err("not a directory".to_owned());
    }
    trust::check_mode(&about)
}
