//! Files that somebody asked for by name: whole or not at all, and never in the place of something else.

use std::fs::{self, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

use crate::{Error, Result};

/// Writes a file.
///
/// - A new one appears whole, with the umask's mode.
/// - A regular file that may be written is replaced as a whole, and keeps its mode and, where that is allowed, its owner.
///   A link to one stays a link.
/// - What is no regular file, such as a device or a FIFO, is written into.
/// - A link to nothing is refused.
///
/// # Errors
/// Data, if it cannot be written; the text names `path`.
pub fn write(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> Result<()> {
    let path = path.as_ref();
    put(path, bytes.as_ref())
        .map_err(|error| Error::data(format!("{} cannot be written: {error}", path.display())).with_source(error))
}

fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Opening asks whether it may be written, which renaming does not.
    match OpenOptions::new().write(true).open(path) {
        Ok(mut file) => {
            let there = file.metadata()?;
            if !there.is_file() {
                return file.write_all(bytes);
            }
            replace(&fs::canonicalize(path)?, Some(&there), bytes)
        }
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        Err(_) if path.is_symlink() => Err(io::Error::other("it is a link to nothing")),
        Err(_) => replace(path, None, bytes),
    }
}

/// Under another name first, then renamed.
fn replace(path: &Path, there: Option<&Metadata>, bytes: &[u8]) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Less the umask; what was private is at no time less so.
    let mode = if there.is_some() { 0o600 } else { 0o666 };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".writing-").permissions(Permissions::from_mode(mode));
    let mut new = builder.tempfile_in(dir).map_err(|error| in_dir(dir, error.kind()))?;
    // The handle, as errors of `new` itself name the other name.
    let file = new.as_file_mut();
    file.write_all(bytes)?;
    if let Some(there) = there {
        // Nobody but root gives files away; a group may be one's own.
        let _ = fchown(&*file, None, Some(there.gid()));
        let _ = fchown(&*file, Some(there.uid()), None);
        file.set_permissions(there.permissions())?;
    }
    file.sync_all()?;
    new.persist(path)?;
    Ok(())
}

fn in_dir(dir: &Path, kind: ErrorKind) -> io::Error {
    let dir = dir.display();
    let text = match kind {
        ErrorKind::NotFound => format!("there is no directory {dir}"),
        kind => format!("the directory {dir} takes no new file: {kind}"),
    };
    io::Error::new(kind, text)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::unix::fs::{FileTypeExt, symlink};
    use std::path::PathBuf;
    use std::process::Command;
    use std::thread;

    use super::*;

    fn temp() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    /// The names in a directory, in order.
    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    /// A character device; none where this may not be made or opened.
    fn device(path: PathBuf, minor: &str) -> Option<PathBuf> {
        let made = Command::new("mknod").arg(&path).args(["c", "1", minor]).output().unwrap().status.success();
        let is_open = made && OpenOptions::new().write(true).open(&path).is_ok();
        if !is_open {
            eprintln!("SKIPPED: no device can be made or opened here");
        }
        is_open.then_some(path)
    }

    #[track_caller]
    fn refused(path: &Path, why: &str) {
        let error = write(path, "new").unwrap_err();
        assert!(error.is_data());
        assert_eq!(error.to_string(), format!("{} cannot be written: {why}", path.display()));
    }

    #[test]
    fn a_new_file_has_the_umasks_mode() {
        let temp = temp();
        let (plain, path) = (temp.path().join("plain"), temp.path().join("new"));
        File::create(&plain).unwrap();
        write(&path, "text").unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"text".to_vec(), mode(&plain)));
        assert_eq!(names(temp.path()), ["new", "plain"]);
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_keeps_its_mode() {
        let temp = temp();
        let (path, other) = (temp.path().join("file"), temp.path().join("other name"));
        fs::write(&path, "a longer text").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o604)).unwrap();
        fs::hard_link(&path, &other).unwrap();
        let mut reader = File::open(&path).unwrap();
        write(&path, "new").unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"new".to_vec(), 0o604));
        // Who has it open reads on in what it was.
        let mut before = String::new();
        reader.read_to_string(&mut before).unwrap();
        assert_eq!((before.as_str(), fs::read(&other).unwrap()), ("a longer text", b"a longer text".to_vec()));
        assert_eq!(names(temp.path()), ["file", "other name"]);
    }

    #[test]
    fn a_link_stays_a_link() {
        let temp = temp();
        let (below, link) = (temp.path().join("below"), temp.path().join("link"));
        fs::create_dir(&below).unwrap();
        fs::write(below.join("file"), "old").unwrap();
        symlink("below/file", &link).unwrap();
        write(&link, "new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read(below.join("file")).unwrap(), b"new");
        assert_eq!((names(temp.path()), names(&below)), (vec!["below".into(), "link".into()], vec!["file".into()]));
    }

    #[test]
    fn a_link_to_nothing_is_refused() {
        let temp = temp();
        let (link, round) = (temp.path().join("link"), temp.path().join("round"));
        symlink(temp.path().join("nothing"), &link).unwrap();
        refused(&link, "it is a link to nothing");
        symlink(&round, &round).unwrap();
        refused(&round, "Too many levels of symbolic links (os error 40)");
        assert_eq!(names(temp.path()), ["link", "round"]);
    }

    #[test]
    fn a_fifo_is_written_into() {
        let temp = temp();
        let path = temp.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let read = thread::spawn({
            let path = path.clone();
            move || fs::read(path).unwrap()
        });
        write(&path, "text").unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().file_type().is_fifo());
        assert_eq!(read.join().unwrap(), b"text");
    }

    #[test]
    fn a_device_is_written_into() {
        let temp = temp();
        let Some(null) = device(temp.path().join("null"), "3") else { return };
        write(&null, "text").unwrap();
        assert!(fs::symlink_metadata(&null).unwrap().file_type().is_char_device());
        let Some(full) = device(temp.path().join("full"), "7") else { return };
        refused(&full, "No space left on device (os error 28)");
        assert_eq!(names(temp.path()), ["full", "null"]);
    }

    #[test]
    fn a_refusal_names_the_path_and_leaves_nothing() {
        let temp = temp();
        let missing = temp.path().join("missing");
        refused(&missing.join("file"), &format!("there is no directory {}", missing.display()));
        refused(temp.path(), "Is a directory (os error 21)");
        assert_eq!(names(temp.path()), Vec::<String>::new());
    }

    /// Root may write whatever is there.
    #[test]
    fn a_file_that_may_not_be_written_is_not_replaced() {
        let temp = temp();
        let path = temp.path().join("file");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
        if OpenOptions::new().write(true).open(&path).is_ok() {
            return eprintln!("SKIPPED: this user may write every file");
        }
        refused(&path, "Permission denied (os error 13)");
        assert_eq!(fs::read(&path).unwrap(), b"old");
    }
}
