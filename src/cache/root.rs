//! One directory of entries: where they lie, and how one is found.
//!
//! ```text
//! ROOT/ab/ab0123456789abcd-HASH        an entry: kin (name and target), then the hash of its key
//! ROOT/ab/ab0123456789abcd-HASH.lock   while a process compiles it
//! ROOT/ab/.writing-XXXXXX              while a process writes one
//! ROOT/.sweeping                       while a process evicts
//! ```

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::entry::{self, Entry};
use super::key::{Key, Recipe};
use super::shard::{Owners, Shard, Trouble};
use crate::build::Cubin;
use crate::trust::make_dir;

/// Lock files end so.
pub(super) const LOCKED: &str = ".lock";
/// A use is written down this often at most.
const TOUCH_AFTER: Duration = Duration::from_secs(3600);

/// A directory of entries that may be read.
#[derive(Debug)]
pub(super) struct Root {
    dir: PathBuf,
    owners: Owners,
}

/// A cubin that was found, and the size of its entry.
pub(super) struct Found {
    pub cubin: Cubin,
    pub bytes: u64,
}

/// An entry that was found where others of its name and target are.
pub(super) struct Kin {
    pub path: PathBuf,
    pub entry: Entry,
    pub bytes: u64,
}

/// What tells a file from the one that replaces it: none while there is no file.
pub(super) type Stamp = Option<(u64, SystemTime)>;

impl Root {
    /// A directory that is made if need be and belongs to the user, or to root; no one else may write to it.
    pub fn own(dir: PathBuf) -> Result<Self, Trouble> {
        match make_dir(&dir) {
            Ok(()) => Self::open(dir, Owners::Own),
            Err(error) => Err(Trouble::of(dir, error)),
        }
    }

    /// A directory that is only read. Whoever named it trusts its owner, whoever that is, but not everyone.
    pub fn layer(dir: PathBuf) -> Result<Self, Trouble> {
        Self::open(dir, Owners::Any)
    }

    /// Wherever the path leads: it is the user's.
    fn open(dir: PathBuf, owners: Owners) -> Result<Self, Trouble> {
        let checked = fs::metadata(&dir)
            .map_err(|error| error.to_string())
            .and_then(|about| if about.is_dir() { owners.check(&about) } else { Err("not a directory".to_owned()) });
        match checked {
            Ok(()) => Ok(Self { dir, owners }),
            Err(why) => Err(Trouble::of(dir, why)),
        }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn path_of(&self, key: &Key) -> PathBuf {
        self.shard_of(key.recipe()).join(name_of(key))
    }

    fn shard_of(&self, recipe: &Recipe) -> PathBuf {
        self.dir.join(&recipe.kin()[..2])
    }

    /// The entry of `key`; none if there is no file. With `touch`, the use of one that is whole is written down.
    pub fn load(&self, key: &Key, touch: bool) -> Result<Option<Found>, Trouble> {
        let Some(shard) = Shard::open(self.shard_of(key.recipe()), self.owners)? else { return Ok(None) };
        let Some((bytes, file)) = shard.read(&name_of(key))? else { return Ok(None) };
        let cubin = entry::decode_of(key, &bytes).map_err(|why| Trouble::of(self.path_of(key), why))?;
        if touch {
            touch_now(&file);
        }
        Ok(Some(Found { cubin, bytes: bytes.len() as u64 }))
    }

    /// Every entry of this name and target, whatever else differs; and what is wrong with those that cannot be used.
    pub fn kin_of(&self, recipe: &Recipe) -> impl Iterator<Item = Result<Kin, Trouble>> {
        let (dir, prefix) = (self.shard_of(recipe), format!("{}-", recipe.kin()));
        let (shard, trouble) = match Shard::open(dir.clone(), self.owners) {
            Ok(shard) => (shard, None),
            Err(trouble) => (None, Some(trouble)),
        };
        let names = shard.iter().flat_map(Shard::names).filter(|name| name.starts_with(&prefix) && is_entry(name));
        let mut names: Vec<String> = names.collect();
        // The order of a directory is no order.
        names.sort();
        let kin = names.into_iter().filter_map(move |name| {
            let (path, read) = (dir.join(&name), shard.as_ref()?.read(&name).transpose()?);
            Some(read.and_then(|(bytes, _)| match entry::decode(&bytes) {
                Ok(entry) => Ok(Kin { path, entry, bytes: bytes.len() as u64 }),
                Err(why) => Err(Trouble::of(path, why)),
            }))
        });
        trouble.map(Err).into_iter().chain(kin)
    }

    /// Writes the entry of `key`. Gives its size.
    pub fn store(&self, key: &Key, cubin: &Cubin) -> Result<u64, Trouble> {
        let bytes = entry::encode(key, cubin).map_err(|why| Trouble::of(self.path_of(key), why))?;
        Shard::make(self.shard_of(key.recipe()), self.owners)?.write(&name_of(key), &bytes)?;
        Ok(bytes.len() as u64)
    }

    /// Where the lock of a key is, in a directory that is made if need be.
    pub fn lock_of(&self, key: &Key) -> Result<PathBuf, Trouble> {
        Shard::make(self.shard_of(key.recipe()), self.owners)?;
        let mut path = self.path_of(key).into_os_string();
        path.push(LOCKED);
        Ok(path.into())
    }

    pub fn stamp(&self, key: &Key) -> Stamp {
        let about = fs::symlink_metadata(self.path_of(key)).ok()?;
        Some((about.ino(), about.modified().ok()?))
    }
}

fn name_of(key: &Key) -> String {
    format!("{}-{}", key.recipe().kin(), key.hash())
}

/// Whether a file of this name is an entry, of whatever version.
pub(super) fn is_entry(name: &str) -> bool {
    name.len() >= 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// How long ago; a time in the future counts as now, since a clock has been moved.
pub(super) fn age(modified: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(modified).unwrap_or_default()
}

/// Writes the use down, if that was not done lately. Where it may not be, the entry only looks older than it is.
fn touch_now(file: &File) {
    let now = SystemTime::now();
    let modified = file.metadata().and_then(|about| about.modified());
    if modified.is_ok_and(|modified| modified > now || age(modified, now) > TOUCH_AFTER) {
        let _ = file.set_modified(now);
    }
}
