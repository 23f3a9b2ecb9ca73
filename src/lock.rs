//! A lock between processes that ends with its holder, however that ends.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::open;

/// An advisory lock on a file that lives as long as the lock is held. The system releases it when the holder dies; the
/// file that then stays is taken over by the next holder.
#[derive(Debug)]
pub struct Lock {
    /// Closing it releases the lock.
    _file: File,
    path: PathBuf,
}

impl Lock {
    /// The lock, or none while another holds it.
    ///
    /// # Errors
    /// Whatever keeps the file from being made or locked; then there is no locking here.
    pub fn try_take(path: &Path) -> io::Result<Option<Self>> {
        // A holder removes the file before it lets go. Whoever then gets the lock of the removed file holds nothing,
        // and tries the one that is at the path by now; twice in a row is a coincidence, more is another's turn.
        for _ in 0..8 {
            let file = open::or_make(path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            if is_at(&file, path)? {
                return Ok(Some(Self { _file: file, path: path.to_owned() }));
            }
        }
        Ok(None)
    }

    /// That of a file which processes read and write again in turn. Others are waited for, not for ever: then, or where nothing can be
    /// locked, as beside a device, it is done at the same time.
    pub fn beside(path: &Path) -> Option<Self> {
        const LONGEST: Duration = Duration::from_secs(10);
        if path.exists() && !path.is_file() {
            return None;
        }
        let mut beside = path.as_os_str().to_owned();
        beside.push(".lock");
        let begun = Instant::now();
        loop {
            match Self::try_take(Path::new(&beside)) {
                Ok(None) if begun.elapsed() < LONGEST => thread::sleep(Duration::from_millis(20)),
                Ok(held) => return held,
                Err(error) => {
                    tracing::warn!("{} cannot be locked: {error}", path.display());
                    return None;
                }
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is held, so that no one can have locked it in between. A file that stays does no harm.
        let _ = fs::remove_file(&self.path);
    }
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let held = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (held.dev(), held.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn one_holder_and_no_file_afterwards() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("lock");
        let held = Lock::try_take(&path).unwrap().unwrap();
        assert!(Lock::try_take(&path).unwrap().is_none());
        drop(held);
        assert!(!path.exists());
        // A holder that died left its file.
        fs::write(&path, "").unwrap();
        assert!(Lock::try_take(&path).unwrap().is_some());
        assert!(Lock::try_take(&temp.path().join("none/lock")).is_err());
    }

    /// The file is made and removed all the time; still no two hold the lock at once.
    #[test]
    fn never_two_holders() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("lock");
        let (holders, taken) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    while taken.load(Ordering::SeqCst) < 2000 {
                        if let Some(held) = Lock::try_take(&path).unwrap() {
                            assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
                            taken.fetch_add(1, Ordering::SeqCst);
                            // Long enough for others to come and to be wrong.
                            std::thread::sleep(std::time::Duration::from_micros(50));
                            holders.fetch_sub(1, Ordering::SeqCst);
                            drop(held);
                        }
                    }
                });
            }
        });
    }
}
