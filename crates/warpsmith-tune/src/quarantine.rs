//! Kernels that are not tried again: what was wrong, hung or crashed, by what the cache knows machine code by.
//!
//! One small JSON file a kernel. It is written whole or not at all; whatever is wrong with one, it is a miss and a log
//! line. The name is the hash of the cache's [`Key`], so another toolchain, or a change of the source, tries again; so does
//! another device or driver, and everybody after a while.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::measure::Rejection;
use warpsmith::cache::KernelCache;
use warpsmith::internal::Raise;
use warpsmith::internal::build::Digest;
use warpsmith::internal::cache::Key;
use warpsmith::run::DriverVersion;
use warpsmith::{Error, Result};

/// Bumped when the meaning of a file changes; old ones are then misses.
const VERSION: u32 = 2;
/// A file is some hundred bytes and what a compiler said.
const BYTES_MAX: u64 = 1 << 20;
/// Files end so.
const ENDING: &str = "json";
/// Temporary files begin so.
const WRITING: &str = ".writing-";

/// Refused kernels, remembered in this process and, if it has a directory, beyond it: for [`Quarantine::KEPT`], on the
/// platform that refused them.
#[derive(Debug, Default)]
pub struct Quarantine {
    root: Option<PathBuf>,
    here: Mutex<HashMap<Digest, Entry>>,
}

/// A device and its driver: a kernel that one cannot run may run with another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    device: String,
    driver: String,
}

impl Platform {
    /// A device that the driver calls `device`, and the CUDA version of that driver.
    #[must_use]
    pub fn new(device: &str, driver: DriverVersion) -> Self {
        Self { device: device.to_owned(), driver: driver.to_string() }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, driver CUDA {}", self.device, self.driver)
    }
}

/// A file: what was refused and why, where and when.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    version: u32,
    kernel: String,
    rejection: Rejection,
    #[serde(flatten)]
    platform: Platform,
    /// RFC 3339.
    recorded: String,
    key: String,
}

impl Entry {
    /// Whether it still counts. One from the future does not: a clock was wrong.
    fn is_in_force(&self, platform: &Platform, now: Timestamp) -> bool {
        let age = self.recorded.parse::<Timestamp>().ok().map(|recorded| now.duration_since(recorded));
        let is_young = age.is_some_and(|age| {
            let kept = i64::try_from(Quarantine::KEPT.as_secs()).unwrap_or(i64::MAX);
            (-A_DAY..kept).contains(&age.as_secs())
        });
        is_young && self.platform == *platform
    }
}

/// Seconds that two clocks may differ by.
const A_DAY: i64 = 24 * 3600;

impl Quarantine {
    /// How long a kernel stays refused: 30 days.
    pub const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

    /// Kept in this directory, which is made when there is something to keep.
    #[must_use]
    pub fn open(root: impl Into<PathBuf>) -> Self {
        Self { root: Some(root.into()), here: Mutex::default() }
    }

    /// Kept in the folder `quarantine` of a cache's directory of cubins; in this process only, if it has none.
    #[must_use]
    pub fn beside(cache: &KernelCache) -> Self {
        cache.disk().root().map_or_else(Self::default, |root| Self::open(root.join("quarantine")))
    }

    /// Kept in this process only.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::default()
    }

    /// Where the entry of `key` is, or would be.
    #[must_use]
    pub fn path_of(&self, key: &Key) -> Option<PathBuf> {
        self.root.as_ref().map(|root| root.join(format!("{}.{ENDING}", key.hash())))
    }

    /// Whether there may be an entry of `key`, in force or not.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.here().contains_key(&key.hash()) || self.path_of(key).is_some_and(|path| path.exists())
    }

    /// Why the kernel of `key` was refused on `platform`, if it was.
    #[must_use]
    pub fn get(&self, key: &Key, platform: &Platform) -> Option<Rejection> {
        self.get_at(key, platform, Timestamp::now())
    }

    fn get_at(&self, key: &Key, platform: &Platform, now: Timestamp) -> Option<Rejection> {
        let in_force = |entry: &Entry| entry.is_in_force(platform, now).then(|| entry.rejection.clone());
        if let Some(rejection) = self.here().get(&key.hash()).and_then(in_force) {
            return Some(rejection);
        }
        let path = self.path_of(key)?;
        match read(&path, key) {
            Ok(entry) => entry.as_ref().and_then(in_force),
            Err(why) => {
                tracing::warn!(path = %path.display(), why, "quarantine: an entry cannot be read, trying the kernel again");
                None
            }
        }
    }

    /// Remembers that `kernel`, which is known by `key`, was refused on `platform`. A failure to write is logged.
    pub fn put(&self, key: &Key, kernel: &str, rejection: &Rejection, platform: &Platform) {
        let entry = Entry {
            version: VERSION,
            kernel: kernel.to_owned(),
            rejection: rejection.clone(),
            platform: platform.clone(),
            recorded: Timestamp::now().to_string(),
            key: key.text().to_owned(),
        };
        if let Some(path) = self.path_of(key)
            && let Err(error) = write(&path, &entry)
        {
            tracing::warn!(path = %path.display(), %error, "quarantine: an entry cannot be written, going on without");
        }
        self.here().insert(key.hash(), entry);
    }

    /// Forgets everything, in this process and in the directory: all kernels are tried again. How many files that were.
    ///
    /// # Errors
    /// Data, if a file cannot be removed.
    pub fn clear(&self) -> Result<usize> {
        self.here().clear();
        let Some(root) = &self.root else { return Ok(0) };
        let refused = |path: &Path, error: io::Error| {
            Error::data(format!("{} cannot be removed from quarantine: {error}", path.display())).with_source(error)
        };
        let mut removed = 0;
        for path in files(root).map_err(|error| refused(root, error))? {
            fs::remove_file(&path).map_err(|error| refused(&path, error))?;
            removed += 1;
        }
        Ok(removed)
    }

    fn here(&self) -> MutexGuard<'_, HashMap<Digest, Entry>> {
        self.here.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The files of a directory that are its own, whatever is in them; none if there is no directory.
fn files(root: &Path) -> io::Result<Vec<PathBuf>> {
    let found = match fs::read_dir(root) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let is_own = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let hash = name.strip_suffix(ENDING).and_then(|name| name.strip_suffix('.'));
        hash.is_some_and(|hash| hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
            || name.starts_with(WRITING)
    };
    Ok(found.flatten().map(|file| file.path()).filter(|path| is_own(path)).collect())
}

/// Only a regular file, since opening a pipe would wait, and only a small one.
fn read(path: &Path, key: &Key) -> std::result::Result<Option<Entry>, String> {
    let about = match fs::metadata(path) {
        Ok(about) => about,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    if !about.is_file() || about.len() > BYTES_MAX {
        return Err(format!("not a regular file of at most {BYTES_MAX} bytes"));
    }
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let entry: Entry = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    if entry.version != VERSION {
        return Err(format!("version {}, this is {VERSION}", entry.version));
    }
    if entry.key != key.text() {
        return Err("the entry is of another key".to_owned());
    }
    Ok(Some(entry))
}

fn write(path: &Path, entry: &Entry) -> io::Result<()> {
    let text = serde_json::to_string_pretty(entry)?;
    let dir = path.parent().unwrap_or(path);
    fs::create_dir_all(dir)?;
    // As the cache does it: under another name first, which tells what a dead writer left.
    let mut file = tempfile::Builder::new().prefix(WRITING).tempfile_in(dir)?;
    file.write_all(text.as_bytes())?;
    file.persist(path)?;
    remove_old(dir);
    Ok(())
}

/// Removes what is not in force any more, wherever that was.
fn remove_old(dir: &Path) {
    let is_old = |path: &Path| {
        let modified = fs::symlink_metadata(path).and_then(|about| about.modified()).ok();
        let age = modified.and_then(|modified| SystemTime::now().duration_since(modified).ok());
        age.is_some_and(|age| age > Quarantine::KEPT)
    };
    for path in files(dir).unwrap_or_default().into_iter().filter(|path| is_old(path)) {
        // Another process may have done so; what cannot be removed is read as old.
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use warpsmith::build::Toolchain;
    use warpsmith::internal::build::Source;

    /// The key of a source, by a toolchain that is an empty file.
    fn key(dir: &Path, library: &str, text: &str) -> Key {
        let path = dir.join(library);
        fs::write(&path, "").unwrap();
        Key::new(&Toolchain::at(path).unwrap(), &Source::new("k.cu", text, &[], ["k"]), "sm_90a").unwrap()
    }

    fn platform() -> Platform {
        Platform::new("NVIDIA H200", DriverVersion { major: 13, minor: 0 })
    }

    #[test]
    fn another_process_knows_and_another_toolchain_tries_again() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("quarantine");
        let [old, new] = ["libnvrtc.so.13.0.48", "libnvrtc.so.13.0.88"].map(|name| key(temp.path(), name, "text"));
        let changed = key(temp.path(), "libnvrtc.so.13.0.88", "other");
        let wrong = Rejection::Wrong("wrong: 3 of 8 elements".to_owned());
        let on = platform();
        Quarantine::open(&root).put(&new, "gemm/v", &wrong, &on);
        let next = Quarantine::open(&root);
        assert_eq!((next.get(&new, &on), next.get(&old, &on), next.get(&changed, &on)), (Some(wrong), None, None));
        // The newest reason stands.
        next.put(&new, "gemm/v", &Rejection::Hangs, &on);
        assert_eq!(Quarantine::open(&root).get(&new, &on), Some(Rejection::Hangs));
        assert_eq!(fs::read_dir(&root).unwrap().count(), 1);
    }

    #[test]
    fn another_driver_or_device_tries_again() {
        let temp = tempfile::tempdir().unwrap();
        let of = key(temp.path(), "libnvrtc.so.13.0.88", "text");
        let root = temp.path().join("quarantine");
        let put = Quarantine::open(&root);
        put.put(&of, "gemm/v", &Rejection::Hangs, &platform());
        let newer = Platform::new("NVIDIA H200", DriverVersion { major: 13, minor: 1 });
        let other = Platform::new("NVIDIA H100 PCIe", DriverVersion { major: 13, minor: 0 });
        for quarantine in [put, Quarantine::open(&root)] {
            assert!(quarantine.has(&of));
            assert_eq!(quarantine.get(&of, &platform()), Some(Rejection::Hangs));
            assert_eq!((quarantine.get(&of, &newer), quarantine.get(&of, &other)), (None, None));
        }
        let text = fs::read_to_string(Quarantine::open(&root).path_of(&of).unwrap()).unwrap();
        assert!(text.contains("\"device\": \"NVIDIA H200\"") && text.contains("\"driver\": \"13.0\""), "{text}");
        assert!(text.contains(&format!("\"recorded\": \"{}", &Timestamp::now().to_string()[..10])), "{text}");
    }

    #[test]
    fn after_thirty_days_it_is_tried_again() {
        let temp = tempfile::tempdir().unwrap();
        let of = key(temp.path(), "libnvrtc.so.13.0.88", "text");
        let root = temp.path().join("quarantine");
        let put = Quarantine::open(&root);
        put.put(&of, "gemm/v", &Rejection::Hangs, &platform());
        let after = |days: i64| Timestamp::now() + jiff::SignedDuration::from_hours(24 * days);
        for quarantine in [put, Quarantine::open(&root)] {
            let get = |days| quarantine.get_at(&of, &platform(), after(days));
            assert_eq!([0, 29].map(get), [Some(Rejection::Hangs), Some(Rejection::Hangs)]);
            // Written by a clock that was two days ahead, or long ago.
            assert_eq!([30, 400, -2].map(get), [None, None, None]);
        }
        // What is old goes when something is written.
        let path = Quarantine::open(&root).path_of(&of).unwrap();
        let old = SystemTime::now() - Quarantine::KEPT - Duration::from_secs(60);
        fs::File::open(&path).unwrap().set_modified(old).unwrap();
        let other = key(temp.path(), "libnvrtc.so.13.0.88", "other");
        fs::write(root.join("notes.json"), "").unwrap();
        fs::File::open(root.join("notes.json")).unwrap().set_modified(old).unwrap();
        Quarantine::open(&root).put(&other, "gemm/w", &Rejection::Hangs, &platform());
        assert!(!path.exists() && root.join("notes.json").exists());
    }

    #[test]
    fn what_is_cleared_is_tried_again() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("quarantine");
        let keys = ["one", "two"].map(|text| key(temp.path(), "libnvrtc.so.13.0.88", text));
        assert_eq!(Quarantine::open(&root).clear().unwrap(), 0, "there is no directory");
        let quarantine = Quarantine::open(&root);
        keys.iter().for_each(|key| quarantine.put(key, "gemm/v", &Rejection::Hangs, &platform()));
        fs::write(root.join("notes.txt"), "").unwrap();
        assert_eq!(quarantine.clear().unwrap(), 2);
        assert!(keys.iter().all(|key| !quarantine.has(key) && quarantine.get(key, &platform()).is_none()));
        assert_eq!(fs::read_dir(&root).unwrap().count(), 1, "nothing else is removed");
        let file = temp.path().join("a file");
        fs::write(&file, "").unwrap();
        let error = Quarantine::open(&file).clear().unwrap_err();
        assert!(error.is_data() && error.to_string().contains("a file cannot be removed"), "{error}");
    }

    /// A pipe that nobody writes to, and a file that does not end.
    #[test]
    fn nothing_waits_for_an_entry() {
        let temp = tempfile::tempdir().unwrap();
        let of = key(temp.path(), "libnvrtc.so.13.0.88", "text");
        let quarantine = Quarantine::open(temp.path().join("quarantine"));
        let path = quarantine.path_of(&of).unwrap();
        fs::create_dir(path.parent().unwrap()).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        assert_eq!(quarantine.get(&of, &platform()), None);
        fs::remove_file(&path).unwrap();
        fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(quarantine.get(&of, &platform()), None);
        quarantine.put(&of, "gemm/v", &Rejection::Hangs, &platform());
        assert_eq!(Quarantine::open(path.parent().unwrap()).get(&of, &platform()), Some(Rejection::Hangs));
    }

    #[test]
    fn what_is_wrong_with_a_file_is_a_miss() {
        let temp = tempfile::tempdir().unwrap();
        let of = key(temp.path(), "libnvrtc.so.13.0.88", "text");
        let on = platform();
        Quarantine::open(temp.path()).put(&of, "gemm/v", &Rejection::NotRepeatable, &on);
        let path = Quarantine::open(temp.path()).path_of(&of).unwrap();
        let good = fs::read_to_string(&path).unwrap();
        let faults = [
            String::new(),
            good[..good.len() / 2].to_owned(),
            good.replace("\"version\": 2", "\"version\": 1"),
            good.replace("not_repeatable", "not_yet_known"),
            good.replace("\"key\": \"", "\"key\": \"x"),
            good.replace("\"recorded\": \"", "\"recorded\": \"x"),
            good.replace("\"driver\"", "\"river\""),
        ];
        for fault in faults {
            assert_ne!(fault, good);
            fs::write(&path, &fault).unwrap();
            assert_eq!(Quarantine::open(temp.path()).get(&of, &on), None, "{fault}");
        }
        fs::write(&path, [0xFF, 0xFE]).unwrap();
        assert_eq!(Quarantine::open(temp.path()).get(&of, &on), None);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(Quarantine::open(temp.path()).get(&of, &on), None);
    }

    #[test]
    fn where_nothing_can_be_written_this_process_still_knows() {
        let temp = tempfile::tempdir().unwrap();
        let of = key(temp.path(), "libnvrtc.so.13.0.88", "text");
        let file = temp.path().join("a file");
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o400)).unwrap();
        for quarantine in [Quarantine::open(file.join("below")), Quarantine::in_memory()] {
            quarantine.put(&of, "gemm/v", &Rejection::Hangs, &platform());
            assert_eq!(quarantine.get(&of, &platform()), Some(Rejection::Hangs));
        }
        assert!(Quarantine::in_memory().path_of(&of).is_none());
    }
}
