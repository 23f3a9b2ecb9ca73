//! Where a pack's bytes are: a file, read as needed, or memory.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::cache::entry;
use crate::open;

/// The most bytes of an entry, a section or the index, which then has more than a hundred thousand kernels.
pub(super) const MAX_PART: u64 = entry::MAX_BYTES;

pub(super) enum Bytes {
    Static(&'static [u8]),
    /// Kept open, so that a pack that is replaced is read on as it was.
    File {
        file: File,
        length: u64,
    },
}

impl Bytes {
    /// Only of a regular file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = open::file(path)?;
        let length = file.metadata()?.len();
        Ok(Self::File { file, length })
    }

    pub fn len(&self) -> u64 {
        match self {
            Self::Static(bytes) => bytes.len() as u64,
            Self::File { length, .. } => *length,
        }
    }

    /// `count` bytes from `at`; all of them or the reason. However long a file says it is, no more is taken than a part of a
    /// pack may have.
    pub fn read(&self, at: u64, count: u64) -> Result<Cow<'static, [u8]>, String> {
        let length = self.len();
        let outside = || format!("cut short: bytes {at} to {} of {length}", at.saturating_add(count));
        let end = at.checked_add(count).filter(|end| *end <= length).ok_or_else(outside)?;
        if count > MAX_PART {
            return Err(format!("bytes {at} to {end}: {count} bytes, a part of a pack has at most {MAX_PART}"));
        }
        match self {
            Self::Static(bytes) => {
                let range = usize::try_from(at).ok().zip(usize::try_from(end).ok());
                range.and_then(|(at, end)| bytes.get(at..end)).map(Cow::Borrowed).ok_or_else(outside)
            }
            Self::File { file, .. } => {
                let (mut bytes, count) = (Vec::new(), usize::try_from(count).map_err(|_| outside())?);
                bytes.try_reserve_exact(count).map_err(|error| format!("bytes {at} to {end}: {error}"))?;
                bytes.resize(count, 0);
                file.read_exact_at(&mut bytes, at).map_err(|error| format!("bytes {at} to {end}: {error}"))?;
                Ok(Cow::Owned(bytes))
            }
        }
    }
}
