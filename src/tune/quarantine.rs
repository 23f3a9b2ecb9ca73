//! Kernels that are not tried again: what was wrong, hung or crashed, by what the cache knows machine code by.
//!
//! One small JSON file a kernel. It is written whole or not at all; whatever is wrong with one, it is a miss and a log
//! line. The name is the hash of the cache's [`Key`], so another toolchain, or a change of the source, tries again.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::laboratory::Rejection;
use crate::build::Digest;
use crate::cache::{Forge, Key};

/// Bumped when the meaning of a file changes; old ones are then misses.
const VERSION: u32 = 1;

/// Refused kernels, remembered in this process and, if it has a directory, beyond it.
#[derive(Debug, Default)]
pub struct Quarantine {
    root: Option<PathBuf>,
    here: Mutex<HashMap<Digest, Rejection>>,
}

/// A file: what was refused and why, and when, in seconds since 1970.
#[derive(Serialize, Deserialize)]
struct Entry {
    version: u32,
    kernel: String,
    rejection: Rejection,
    recorded: u64,
    key: String,
}

impl Quarantine {
    /// Kept in this directory, which is made when there is something to keep.
    #[must_use]
    pub fn open(root: impl Into<PathBuf>) -> Self {
        Self { root: Some(root.into()), here: Mutex::default() }
    }

    /// Kept in the folder `quarantine` of a forge's directory of cubins; in this process only, if it has none.
    #[must_use]
    pub fn beside(forge: &Forge) -> Self {
        forge.disk().root().map_or_else(Self::default, |root| Self::open(root.join("quarantine")))
    }

    /// Kept in this process only.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::default()
    }

    /// Where the entry of `key` is, or would be.
    #[must_use]
    pub fn path_of(&self, key: &Key) -> Option<PathBuf> {
        self.root.as_ref().map(|root| root.join(format!("{}.json", key.hash())))
    }

    /// Why the kernel of `key` was refused, if it was.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Rejection> {
        if let Some(rejection) = self.here().get(&key.hash()) {
            return Some(rejection.clone());
        }
        let path = self.path_of(key)?;
        match read(&path, key) {
            Ok(rejection) => rejection,
            Err(why) => {
                tracing::warn!(path = %path.display(), why, "quarantine: an entry cannot be read, trying the kernel again");
                None
            }
        }
    }

    /// Remembers that `kernel`, which is known by `key`, was refused. A failure to write is logged.
    pub fn put(&self, key: &Key, kernel: &str, rejection: &Rejection) {
        self.here().insert(key.hash(), rejection.clone());
        let Some(path) = self.path_of(key) else { return };
        if let Err(error) = write(&path, key, kernel, rejection) {
            tracing::warn!(path = %path.display(), %error, "quarantine: an entry cannot be written, going on without");
        }
    }

    fn here(&self) -> MutexGuard<'_, HashMap<Digest, Rejection>> {
        self.here.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(path: &Path, key: &Key) -> Result<Option<Rejection>, String> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let entry: Entry = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    if entry.version != VERSION {
        return Err(format!("version {}, this is {VERSION}", entry.version));
    }
    if entry.key != key.text() {
        return Err("the entry is of another key".to_owned());
    }
    Ok(Some(entry.rejection))
}

fn write(path: &Path, key: &Key, kernel: &str, rejection: &Rejection) -> io::Result<()> {
    let recorded = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (kernel, rejection, key) = (kernel.to_owned(), rejection.clone(), key.text().to_owned());
    let text = serde_json::to_string_pretty(&Entry { version: VERSION, kernel, rejection, recorded, key })?;
    let dir = path.parent().unwrap_or(path);
    fs::create_dir_all(dir)?;
    // As the cache does it: under another name first, which tells what a dead writer left.
    let mut file = tempfile::Builder::new().prefix(".writing-").tempfile_in(dir)?;
    file.write_all(text.as_bytes())?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::build::{Source, Toolchain};

    /// The key of a source, by a toolchain that is an empty file.
    fn key(dir: &Path, library: &str, text: &str) -> Key {
        let path = dir.join(library);
        fs::write(&path, "").unwrap();
        Key::new(&Toolchain::at(path).unwrap(), &Source::new("k.cu", text, &[], ["k"]), "sm_90a").unwrap()
    }

    #[test]
    fn another_process_knows_and_another_toolchain_tries_again() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("quarantine");
        let [old, new] = ["libnvrtc.so.13.0.48", "libnvrtc.so.13.0.88"].map(|name| key(temp.path(), name, "text"));
        let changed = key(temp.path(), "libnvrtc.so.13.0.88", "other");
        let wrong = Rejection::Wrong("wrong: 3 of 8 elements".to_owned());
        Quarantine::open(&root).put(&new, "gemm/v", &wrong);
        let next = Quarantine::open(&root);
        assert_eq!((next.get(&new), next.get(&old), next.get(&changed)), (Some(wrong), None, None));
        // The newest reason stands.
        next.put(&new, "gemm/v", &Rejection::Hangs);
        assert_eq!(Quarantine::open(&root).get(&new), Some(Rejection::Hangs));
        assert_eq!(fs::read_dir(&root).unwrap().count(), 1);
    }

    #[test]
    fn what_is_wrong_with_a_file_is_a_miss() {
        let temp = tempfile::tempdir().unwrap();
        let of = key(temp.path(), "libnvrtc.so.13.0.88", "text");
        Quarantine::open(temp.path()).put(&of, "gemm/v", &Rejection::NotRepeatable);
        let path = Quarantine::open(temp.path()).path_of(&of).unwrap();
        let good = fs::read_to_string(&path).unwrap();
        let faults = [
            String::new(),
            good[..good.len() / 2].to_owned(),
            good.replace("\"version\": 1", "\"version\": 2"),
            good.replace("not_repeatable", "not_yet_known"),
            good.replace("\"key\": \"", "\"key\": \"x"),
        ];
        for fault in faults {
            assert_ne!(fault, good);
            fs::write(&path, &fault).unwrap();
            assert_eq!(Quarantine::open(temp.path()).get(&of), None, "{fault}");
        }
        fs::write(&path, [0xFF, 0xFE]).unwrap();
        assert_eq!(Quarantine::open(temp.path()).get(&of), None);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(Quarantine::open(temp.path()).get(&of), None);
    }

    #[test]
    fn where_nothing_can_be_written_this_process_still_knows() {
        let temp = tempfile::tempdir().unwrap();
        let of = key(temp.path(), "libnvrtc.so.13.0.88", "text");
        let file = temp.path().join("a file");
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o400)).unwrap();
        for quarantine in [Quarantine::open(file.join("below")), Quarantine::in_memory()] {
            quarantine.put(&of, "gemm/v", &Rejection::Hangs);
            assert_eq!(quarantine.get(&of), Some(Rejection::Hangs));
        }
        assert!(Quarantine::in_memory().path_of(&of).is_none());
    }
}
