//! Keeps a directory of entries within its bytes, however many processes do so at once.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::root::{LOCKED, age, is_entry};
use super::shard::{Owners, Shard, WRITING};
use crate::lock::Lock;

/// Temporary files and locks that are older than this belong to a process that died.
const STALE_AFTER: Duration = Duration::from_secs(3600);

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Bytes of all entries together; 0 is no limit.
    pub max_bytes: u64,
    /// What was used in this time is not evicted.
    pub grace: Duration,
}

impl Limits {
    /// What is kept when more than the limit was there: so much less that not every store needs a sweep.
    fn low_bytes(self) -> u64 {
        self.max_bytes - self.max_bytes / 5
    }

    /// How many bytes one process may write until it looks again, when `kept` are there. Others write, too, so it is
    /// only a part of what is left; and never nothing, or a full cache would be swept at every store.
    pub fn until_next(self, kept: u64) -> u64 {
        match self.max_bytes {
            0 => u64::MAX,
            max => (max.saturating_sub(kept) / 8).max(max / 64),
        }
    }
}

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Swept {
    /// Bytes of entries that are there now.
    pub kept_bytes: u64,
    /// Entries removed.
    pub evicted: u64,
    /// Their bytes.
    pub evicted_bytes: u64,
    /// Files removed that dead processes left.
    pub reaped: u64,
}

struct Candidate {
    used: SystemTime,
    path: PathBuf,
    bytes: u64,
}

/// Removes what dead processes left and, if the entries have more bytes than the limit, the least recently used of
/// them. None if another process is at it. Files that vanish meanwhile are no error.
pub(super) fn sweep(root: &Path, limits: Limits) -> io::Result<Option<Swept>> {
    let _turn = match Lock::try_take(&root.join(".sweeping")) {
        Ok(Some(turn)) => Some(turn),
        Ok(None) => return Ok(None),
        // Two that sweep at once do no harm.
        Err(error) => {
            tracing::warn!(root = %root.display(), %error, "cubin cache: no lock, sweeping without");
            None
        }
    };
    let now = SystemTime::now();
    let mut swept = Swept::default();
    let mut candidates = Vec::new();
    for shard in root.read_dir()?.flatten() {
        // Another's file in the root is not ours to touch, nor what a link leads to.
        if !shard.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let Ok(files) = shard.path().read_dir() else { continue };
        for file in files.flatten() {
            let (path, name) = (file.path(), file.file_name());
            let (Some(name), Ok(about)) = (name.to_str(), file.metadata()) else { continue };
            let Ok(used) = about.modified() else { continue };
            if !about.is_file() {
                continue;
            }
            if is_entry(name) {
                swept.kept_bytes += about.len();
                candidates.push(Candidate {
                    used: not_in_future(&shard.path(), name, used, now),
                    path,
                    bytes: about.len(),
                });
            } else if age(used, now) > STALE_AFTER {
                swept.reaped += u64::from(reap(&path, name));
            }
        }
    }
    if limits.max_bytes > 0 && swept.kept_bytes > limits.max_bytes {
        evict(candidates, limits, now, &mut swept);
    }
    Ok(Some(swept))
}

/// The oldest first, until little enough is left.
fn evict(mut candidates: Vec<Candidate>, limits: Limits, now: SystemTime, swept: &mut Swept) {
    candidates.sort_by(|a, b| (a.used, &a.path).cmp(&(b.used, &b.path)));
    for Candidate { used, path, bytes } in candidates {
        if swept.kept_bytes <= limits.low_bytes() || age(used, now) < limits.grace {
            break;
        }
        // Used or written again since it was listed: not the oldest any more.
        if fs::symlink_metadata(&path).and_then(|about| about.modified()).is_ok_and(|latest| latest != used) {
            continue;
        }
        // A reader that has opened it reads on.
        match fs::remove_file(&path) {
            Ok(()) => {
                swept.evicted += 1;
                swept.evicted_bytes += bytes;
            }
            // By another process on another host: gone all the same.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => continue,
        }
        swept.kept_bytes -= bytes;
    }
}

/// A use in the future is one of a clock that has been moved: it counts as now, and is written down as now, or the entry
/// would stay until the clock gets there.
fn not_in_future(shard: &Path, name: &str, used: SystemTime, now: SystemTime) -> SystemTime {
    if used <= now {
        return used;
    }
    // Only of a file that nobody else can have put there in place of another.
    let shard = Shard::open(shard.to_owned(), Owners::Own).ok().flatten();
    if let Some(Ok(Some(file))) = shard.map(|shard| shard.file(name)) {
        let _ = file.set_modified(now);
    }
    now
}

/// Removes what a dead process left; what a slow one still uses stays.
fn reap(path: &Path, name: &str) -> bool {
    if name.starts_with(WRITING) {
        return fs::remove_file(path).is_ok();
    }
    // Letting go of a lock removes its file.
    name.ends_with(LOCKED) && matches!(Lock::try_take(path), Ok(Some(_)))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    const LIMITS: Limits = Limits { max_bytes: 1000, grace: Duration::from_secs(60) };

    /// Entries of 100 bytes, used so many seconds ago (in the future, if negative).
    fn root(ages: &[i64]) -> tempfile::TempDir {
        let temp = tempfile::tempdir().unwrap();
        for (index, seconds) in ages.iter().enumerate() {
            place(temp.path(), &name(index), 100, *seconds);
        }
        temp
    }

    fn name(index: usize) -> String {
        format!("{index:016x}-{index:064x}")
    }

    fn place(root: &Path, name: &str, bytes: usize, seconds: i64) -> PathBuf {
        let path = root.join("ab").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, vec![0; bytes]).unwrap();
        let (now, distance) = (SystemTime::now(), Duration::from_secs(seconds.unsigned_abs()));
        let used = if seconds < 0 { now + distance } else { now - distance };
        File::open(&path).unwrap().set_modified(used).unwrap();
        path
    }

    fn left(root: &Path) -> Vec<usize> {
        (0..100).filter(|index| root.join("ab").join(name(*index)).exists()).collect()
    }

    #[test]
    fn the_oldest_go_until_the_low_mark() {
        let temp = root(&[700, 300, 900, 100, 500, 600, 200, 800, 400, 1000, 1100]);
        let swept = sweep(temp.path(), LIMITS).unwrap().unwrap();
        assert_eq!(swept, Swept { kept_bytes: 800, evicted: 3, evicted_bytes: 300, reaped: 0 });
        assert_eq!(left(temp.path()), [0, 1, 3, 4, 5, 6, 7, 8]);
        assert_eq!(sweep(temp.path(), LIMITS).unwrap().unwrap().evicted, 0, "within the limit nothing goes");
        assert_eq!(sweep(temp.path(), Limits { max_bytes: 0, ..LIMITS }).unwrap().unwrap().kept_bytes, 800);
    }

    #[test]
    fn what_was_used_lately_stays_whatever_the_limit() {
        let temp = root(&[10; 20]);
        assert_eq!(sweep(temp.path(), LIMITS).unwrap().unwrap().evicted, 0);
        let swept = sweep(temp.path(), Limits { grace: Duration::ZERO, ..LIMITS }).unwrap().unwrap();
        assert_eq!((swept.evicted, swept.kept_bytes), (12, 800));
    }

    #[test]
    fn a_clock_that_was_moved() {
        // Written while the clock was a year ahead: as if used now, and not for ever.
        let temp = root(&[-31_536_000; 12]);
        assert_eq!(sweep(temp.path(), LIMITS).unwrap().unwrap().evicted, 0);
        for index in 0..12 {
            let used = fs::metadata(temp.path().join("ab").join(name(index))).unwrap().modified().unwrap();
            assert!(used <= SystemTime::now(), "{index}");
        }
        let swept = sweep(temp.path(), Limits { grace: Duration::ZERO, ..LIMITS }).unwrap().unwrap();
        assert_eq!((swept.evicted, swept.kept_bytes), (4, 800));
    }

    #[test]
    fn what_dead_processes_left_is_reaped_and_nothing_else() {
        let temp = root(&[10]);
        let (old, young) = (7200, 60);
        let lock = format!("{}{LOCKED}", name(1));
        let held = format!("{}{LOCKED}", name(2));
        for (name, seconds) in [(".writing-dead", old), (&lock, old), (&held, old), ("README", old)] {
            place(temp.path(), name, 5, seconds);
        }
        place(temp.path(), ".writing-alive", 5, young);
        // The holder opened the old file.
        let _holder = Lock::try_take(&temp.path().join("ab").join(&held)).unwrap().unwrap();
        fs::write(temp.path().join("file in the root"), "").unwrap();
        let swept = sweep(temp.path(), LIMITS).unwrap().unwrap();
        assert_eq!(swept, Swept { kept_bytes: 100, reaped: 2, ..Swept::default() });
        let there = |name: &str| temp.path().join("ab").join(name).exists();
        assert!(!there(".writing-dead") && !there(&lock));
        assert!(there(&held) && there(".writing-alive") && there("README") && left(temp.path()) == [0]);
    }

    #[test]
    fn one_at_a_time() {
        let temp = root(&[10]);
        let turn = Lock::try_take(&temp.path().join(".sweeping")).unwrap();
        assert!(sweep(temp.path(), LIMITS).unwrap().is_none());
        drop(turn);
        assert!(sweep(temp.path(), LIMITS).unwrap().is_some());
        assert!(sweep(&temp.path().join("none"), LIMITS).is_err());
    }

    #[test]
    fn how_much_may_be_written_until_the_next() {
        assert_eq!(LIMITS.until_next(200), 100);
        assert_eq!(LIMITS.until_next(1000), 15);
        assert_eq!(LIMITS.until_next(5000), 15);
        assert_eq!(Limits { max_bytes: 0, ..LIMITS }.until_next(5000), u64::MAX);
    }
}
