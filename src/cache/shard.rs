//! A directory of entries, opened, and the files in it. Owner and mode are asked of what is open, so nothing can take its
//! place in between.

use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::entry;
use crate::open;
use crate::trust::{self, make_dir};

/// Temporary files begin so.
pub(super) const WRITING: &str = ".writing-";

/// Whose files are used. They are writable by nobody else in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owners {
    /// The user's own, and root's.
    Own,
    /// Anyone's: whoever named the directory trusts them.
    Any,
}

/// A file or a directory, and what was wrong with it.
#[derive(Debug)]
pub(super) struct Trouble {
    pub path: PathBuf,
    pub why: String,
    /// The directory that it lies with, where that is not this file alone.
    pub dir: Option<PathBuf>,
}

/// Of a directory in which nothing that others can write to is used.
#[derive(Debug)]
pub(super) struct Shard {
    path: PathBuf,
    dir: File,
    owners: Owners,
}

impl Owners {
    pub fn check(self, about: &Metadata) -> Result<(), String> {
        if self == Self::Own {
            trust::check_owner(about)?;
        }
        trust::check_mode(about)
    }
}

impl Trouble {
    /// Of this file alone.
    pub fn of(path: PathBuf, why: impl ToString) -> Self {
        Self { path, why: why.to_string(), dir: None }
    }
}

impl Shard {
    /// None if there is no directory.
    pub fn open(path: PathBuf, owners: Owners) -> Result<Option<Self>, Trouble> {
        let opened = open::dir(&path).and_then(|dir| Ok((dir.metadata()?, dir)));
        let why = match opened {
            Ok((about, dir)) => match owners.check(&about) {
                Ok(()) => return Ok(Some(Self { path, dir, owners })),
                Err(why) => why,
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => error.to_string(),
        };
        Err(Trouble { dir: Some(path.clone()), path, why })
    }

    /// Makes the directory, for the user alone, if it is not there.
    pub fn make(path: PathBuf, owners: Owners) -> Result<Self, Trouble> {
        make_dir(&path).map_err(|error| Trouble::of(path.clone(), error))?;
        let gone = || Trouble::of(path.clone(), "removed while it was used");
        Self::open(path.clone(), owners)?.ok_or_else(gone)
    }

    /// The file of this name, opened; none if there is none.
    pub fn file(&self, name: &str) -> Result<Option<File>, Trouble> {
        let path = || self.path.join(name);
        let checked = open::file_in(&self.dir, Path::new(name)).and_then(|file| Ok((file.metadata()?, file)));
        match checked {
            Ok((about, file)) => match self.owners.check(&about) {
                Ok(()) => Ok(Some(file)),
                Err(why) => Err(Trouble { path: path(), why, dir: Some(self.path.clone()) }),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Trouble::of(path(), error)),
        }
    }

    /// The whole file of this name, and the file itself; none if there is none. It may be removed or replaced meanwhile:
    /// what was opened is read.
    pub fn read(&self, name: &str) -> Result<Option<(Vec<u8>, File)>, Trouble> {
        let Some(mut file) = self.file(name)? else { return Ok(None) };
        match read_all(&mut file) {
            Ok(bytes) => Ok(Some((bytes, file))),
            Err(error) => Err(Trouble::of(self.path.join(name), error)),
        }
    }

    /// The names of the files, in no order.
    pub fn names(&self) -> impl Iterator<Item = String> {
        let files = self.path.read_dir().into_iter().flatten().flatten();
        files.filter_map(|file| file.file_name().into_string().ok())
    }

    /// Writes the file under a temporary name, which is removed on any failure, then renames it.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Trouble> {
        let write = || {
            let mut file = tempfile::Builder::new().prefix(WRITING).tempfile_in(&self.path)?;
            file.write_all(bytes)?;
            file.persist(self.path.join(name))?;
            Ok(())
        };
        write().map_err(|error: io::Error| Trouble::of(self.path.join(name), error))
    }
}

/// Never more than an entry can have, whatever the file says: one that is sparse has any length.
fn read_all(file: &mut File) -> io::Result<Vec<u8>> {
    let bytes = file.metadata()?.len();
    if bytes > entry::MAX_BYTES {
        return Err(io::Error::other(format!("{bytes} bytes, an entry has at most {}", entry::MAX_BYTES)));
    }
    let mut whole = Vec::new();
    file.take(entry::MAX_BYTES).read_to_end(&mut whole)?;
    Ok(whole)
}
