//! Which files a program reads and writes: no two of them are one.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Result;

/// What the command line calls a file, and its path, if it is given.
pub type Named<'a> = (&'a str, Option<&'a Path>);

/// Which file it is, whatever path leads to it.
#[derive(PartialEq)]
enum Identity {
    /// Device and inode.
    There(u64, u64),
    New(PathBuf),
}

impl Identity {
    /// None of what is no regular file, which can be several things at a time.
    fn of(path: &Path) -> Option<Self> {
        if let Ok(about) = fs::metadata(path) {
            return about.is_file().then(|| Self::There(about.dev(), about.ino()));
        }
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(Self::New(fs::canonicalize(dir).ok()?.join(path.file_name()?)))
    }

    fn of_stdout() -> Option<Self> {
        let about = File::from(io::stdout().as_fd().try_clone_to_owned().ok()?).metadata().ok()?;
        about.is_file().then(|| Self::There(about.dev(), about.ino()))
    }
}

/// Refuses an output that is an input, another output, or the file that stdout goes to, by whatever path or link.
pub fn apart(inputs: &[Named<'_>], outputs: &[Named<'_>]) -> Result<()> {
    let stdout = Identity::of_stdout().map(|identity| ("what stdout goes to".to_owned(), identity));
    let mut others: Vec<(String, Identity)> = stdout.into_iter().collect();
    for (name, _, identity) in identified(inputs) {
        others.push((format!("what {name} reads"), identity));
    }
    for (name, path, identity) in identified(outputs) {
        if let Some((what, _)) = others.iter().find(|(_, other)| *other == identity) {
            return Err(format!("{name} {} is {what}: name another file", path.display()).into());
        }
        others.push((format!("what {name} writes"), identity));
    }
    Ok(())
}

fn identified<'a>(files: &[Named<'a>]) -> impl Iterator<Item = (&'a str, &'a Path, Identity)> {
    files.iter().filter_map(|(name, path)| Some((*name, (*path)?, Identity::of((*path)?)?)))
}
