//! Whether others could change what this process is about to load or run.
//!
//! [`check_owner`] and [`check_mode`] judge one file or directory that this crate makes itself, whose mode it chooses:
//! only its owner may write to it. [`check_path`] judges what others have made, from the root of the file system down.
//! There a group may write to it that has nobody else in it, since that is how systems with a group for each user
//! (umask 0002) make every file.

#[cfg(feature = "compile")]
mod path;

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;

#[cfg(feature = "compile")]
pub(crate) use path::{Untrusted, check_below, check_path};

const ROOT: u32 = 0;
const GROUP_WRITES: u32 = 0o020;
const ALL_WRITE: u32 = 0o002;

/// Refuses what belongs to another user, who could write to it. What is root's is as good as one's own.
pub(crate) fn check_owner(about: &Metadata) -> Result<(), String> {
    let (owner, me) = (about.uid(), geteuid().as_raw());
    if owner != me && owner != ROOT {
        return Err(format!("the {} belongs to user {owner}, this process to {me}", kind(about)));
    }
    Ok(())
}

/// Refuses what more than its owner can write to.
pub(crate) fn check_mode(about: &Metadata) -> Result<(), String> {
    if about.mode() & (GROUP_WRITES | ALL_WRITE) != 0 { Err(mode_lets_others(about)) } else { Ok(()) }
}

fn mode_lets_others(about: &Metadata) -> String {
    format!("the {}'s mode {:o} lets others write to it", kind(about), about.mode() & 0o7777)
}

fn kind(about: &Metadata) -> &'static str {
    if about.is_dir() { "directory" } else { "file" }
}

/// Makes a directory, and those above it that are missing, for this user alone, whatever the umask.
pub(crate) fn make_dir(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

#[cfg(test)]
mod tests {
    use std::fs::{File, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    #[test]
    fn modes_of_files_and_directories() {
        let temp = tempfile::tempdir().unwrap();
        let file = File::create(temp.path().join("file")).unwrap();
        let dir = File::open(temp.path()).unwrap();
        for (mode, good) in [(0o600, true), (0o755, true), (0o775, false), (0o757, false), (0o1777, false)] {
            for (open, kind) in [(&file, "file"), (&dir, "directory")] {
                open.set_permissions(Permissions::from_mode(mode)).unwrap();
                let checked = check_mode(&open.metadata().unwrap());
                let refused = format!("the {kind}'s mode {mode:o} lets others write to it");
                assert_eq!(checked, if good { Ok(()) } else { Err(refused) });
            }
        }
    }

    #[test]
    fn owners_are_oneself_and_root() {
        assert_eq!(check_owner(&fs::metadata("/").unwrap()), Ok(()));
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().canonicalize().unwrap().join("file");
        let file = File::create(&path).unwrap();
        assert_eq!(check_owner(&file.metadata().unwrap()), Ok(()));
        if !geteuid().is_root() {
            eprintln!("SKIPPED: only root gives a file away");
            return;
        }
        chown(&path, Some(65_534), None).unwrap();
        let refused = check_owner(&file.metadata().unwrap()).unwrap_err();
        assert_eq!(refused, "the file belongs to user 65534, this process to 0");
    }
}
