//! One process compiles a kernel, the others wait for it, but not for ever.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::{Disk, Level};
use crate::build::Cubin;
use crate::cache::key::Key;
use crate::cache::root::Root;
use crate::cache::shard::Trouble;
use crate::cache::stats::micros;
use crate::lock::Lock;

/// The first and the longest pause between two looks at a lock that another process holds.
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// Whose turn it is to compile.
pub(in crate::cache) enum Turn {
    /// Nobody's: another process has stored it meanwhile.
    Found(Box<Cubin>),
    /// The caller's. The lock, if there could be one, is to be held until the entry is stored.
    Ours { _lock: Option<Lock> },
}

impl Disk {
    /// Waits while another process compiles `key`, but not for ever; says whether there is still something to do.
    pub(in crate::cache) fn turn(&self, key: &Key) -> Turn {
        let Some(root) = &self.root else { return Turn::Ours { _lock: None } };
        let (start, patience) = (Instant::now(), Duration::from_micros(self.patience.load(Relaxed)));
        let mut seen = root.stamp(key);
        let (mut pause, mut waited) = (PAUSE, false);
        let turn = loop {
            let lock = match lock(root, key) {
                Ok(lock) => lock,
                Err(trouble) => {
                    // A read-only directory, or a file system without locks: each process compiles for itself.
                    if self.is_news("locking", &trouble) {
                        let Trouble { path, why, .. } = trouble;
                        tracing::warn!(path = %path.display(), why, "cubin cache: no lock, compiling without");
                    }
                    break Turn::Ours { _lock: None };
                }
            };
            // Whoever had the lock before has stored it, or has failed or died; where locks lie, it may be there early.
            let stamp = root.stamp(key);
            if (lock.is_some() || stamp != seen)
                && let Some(found) = self.load(root, key, false)
            {
                break Turn::Found(Box::new(self.hit(found.bytes, Level::Root, found.cubin)));
            }
            seen = stamp;
            if lock.is_some() {
                break Turn::Ours { _lock: lock };
            }
            waited = true;
            if start.elapsed() >= patience {
                // A holder that hangs has more kernels than one: all of them together cost twice the longest wait.
                self.patience.fetch_min(micros(patience / 2), Relaxed);
                self.counters.gave_up.fetch_add(1, Relaxed);
                let path = root.path_of(key);
                tracing::warn!(path = %path.display(), "cubin cache: another process takes too long, compiling as well");
                break Turn::Ours { _lock: None };
            }
            std::thread::sleep(pause.min(patience.saturating_sub(start.elapsed())));
            pause = (pause * 2).min(PAUSE_MAX);
        };
        if waited {
            self.counters.waits.fetch_add(1, Relaxed);
            self.counters.wait_us.fetch_add(micros(start.elapsed()), Relaxed);
        }
        turn
    }
}

/// The lock of `key`, none while another has it.
fn lock(root: &Root, key: &Key) -> Result<Option<Lock>, Trouble> {
    let path = root.lock_of(key)?;
    let of_all = |error| Trouble { dir: Some(root.dir().to_owned()), ..Trouble::of(path.clone(), error) };
    Lock::try_take(&path).map_err(of_all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{Source, Toolchain, testing};

    /// What another process stores between this one's look and its turn is found, and nothing is compiled.
    #[test]
    fn a_turn_begins_with_another_look() {
        let temp = tempfile::tempdir().unwrap();
        let library = temp.path().join("libnvrtc.so.13.0.88");
        std::fs::write(&library, "").unwrap();
        let source = Source::new("k.cu", "text", &[], ["k"]);
        let key = Key::new(&Toolchain::at(library).unwrap(), &source, "sm_90a").unwrap();
        let cubin = testing::cubin(&[1, 2, 3]);
        let (disk, other) = (Disk::open(temp.path().join("root")), Disk::open(temp.path().join("root")));
        assert!(disk.get(&key).is_none());
        // SAFETY: nobody loads it.
        unsafe { other.put(&key, &cubin) };
        assert!(matches!(disk.turn(&key), Turn::Found(found) if *found == cubin));
        assert_eq!((disk.stats().hits, disk.stats().waits), (1, 0));

        // A damaged one is compiled again, by one.
        std::fs::write(disk.path_of(&key).unwrap(), "torn").unwrap();
        let Turn::Ours { _lock: Some(_held) } = disk.turn(&key) else { panic!("nothing usable is there") };
        assert!(Lock::try_take(&disk.root.as_ref().unwrap().lock_of(&key).unwrap()).unwrap().is_none());
    }
}
