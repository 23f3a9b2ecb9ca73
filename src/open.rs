//! Opens files and directories. What is opened is what it is taken for: a pipe or a device is refused and
//! never waited for, and where this crate names the file, no link leads elsewhere.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::{Errno, retry_on_intr};

/// A regular file, for reading, wherever the path leads.
pub(crate) fn file(path: &Path) -> io::Result<File> {
    regular(open(CWD, path, OFlags::RDONLY, Mode::empty())?)
}

/// A regular file in a directory, for reading; no link.
pub(crate) fn file_in(dir: &File, name: &Path) -> io::Result<File> {
    regular(open(dir.as_fd(), name, OFlags::RDONLY | OFlags::NOFOLLOW, Mode::empty())?)
}

/// A regular file, for writing, that is made if need be, for the user alone; no link.
pub(crate) fn or_make(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW;
    regular(open(CWD, path, flags, Mode::RUSR | Mode::WUSR)?)
}

/// A directory; no link.
pub(crate) fn dir(path: &Path) -> io::Result<File> {
    open(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
}

fn open(dir: BorrowedFd<'_>, path: &Path, flags: OFlags, mode: Mode) -> io::Result<File> {
    // Neither waits for the other end of a pipe nor takes a terminal.
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match retry_on_intr(|| openat(dir, path, flags, mode)) {
        Ok(opened) => Ok(opened.into()),
        // What the system calls too many links.
        Err(Errno::LOOP) if flags.contains(OFlags::NOFOLLOW) => Err(io::Error::other("a symbolic link")),
        // A pipe with nobody at its other end, a socket.
        Err(Errno::NXIO) => Err(no_regular_file()),
        Err(error) => Err(error.into()),
    }
}

fn regular(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() { Ok(file) } else { Err(no_regular_file()) }
}

fn no_regular_file() -> io::Error {
    io::Error::other("not a regular file")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_what_it_is_taken_for() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        std::fs::write(at("file"), "text").unwrap();
        symlink(at("file"), at("link")).unwrap();
        symlink(temp.path(), at("link to here")).unwrap();
        rustix::fs::mknodat(CWD, at("pipe"), rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        let here = dir(temp.path()).unwrap();
        let why = |opened: io::Result<File>| opened.map(|_| ()).map_err(|error| error.to_string());
        let (no_file, link) = (Err("not a regular file".to_owned()), Err("a symbolic link".to_owned()));

        assert_eq!(["file", "link"].map(|name| why(file(&at(name)))), [Ok(()), Ok(())]);
        assert_eq!(["pipe", "."].map(|name| why(file(&at(name)))), [no_file.clone(), no_file.clone()]);
        let in_here = ["file", "link", "pipe", "."].map(|name| why(file_in(&here, Path::new(name))));
        assert_eq!(in_here, [Ok(()), link.clone(), no_file.clone(), no_file.clone()]);
        assert_eq!(["file", "new", "link"].map(|name| why(or_make(&at(name)))), [Ok(()), Ok(()), link]);
        assert_eq!(std::fs::read(at("file")).unwrap(), b"text");
        // With and without a reader at its other end.
        assert_eq!(why(or_make(&at("pipe"))), no_file);
        let _reader = openat(CWD, at("pipe"), OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        assert_eq!(why(or_make(&at("pipe"))), no_file);
        assert!(dir(&at("file")).is_err() && dir(&at("link to here")).is_err() && or_make(temp.path()).is_err());
        assert_eq!(file(&at("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
