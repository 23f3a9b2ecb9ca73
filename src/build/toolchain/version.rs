//! Versions of NVRTC, and what the names of its two files tell of them.

use std::fmt;
use std::path::Path;

/// A version of the CUDA compiler, as far as it is known: `13`, `13.0` or `13.0.88`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    major: u32,
    minor: Option<u32>,
    patch: Option<u32>,
}

impl Version {
    /// Reads `13`, `13.0` or `13.0.88`; anything after the third number is dropped.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.').map(|part| part.parse().ok());
        let major = numbers.next()??;
        Some(Self { major, minor: numbers.next().flatten(), patch: numbers.next().flatten() })
    }

    /// The major version.
    #[must_use]
    pub fn major(&self) -> u32 {
        self.major
    }

    /// The minor version, if it is known.
    #[must_use]
    pub fn minor(&self) -> Option<u32> {
        self.minor
    }

    pub(super) fn is_whole(&self) -> bool {
        self.patch.is_some()
    }

    /// `other` may be the same release, as far as both are known.
    pub(super) fn agrees(&self, other: &Self) -> bool {
        self.major == other.major && (self.minor.is_none() || other.minor.is_none() || self.minor == other.minor)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.major)?;
        self.minor.map_or(Ok(()), |minor| write!(f, ".{minor}"))?;
        self.patch.map_or(Ok(()), |patch| write!(f, ".{patch}"))
    }
}

/// What NVRTC's file name begins with.
pub(crate) const LIBRARY: &str = "libnvrtc.so";
/// What the name of the library that it needs beside it begins with.
pub(crate) const BUILTINS: &str = "libnvrtc-builtins.so";

/// Whether this is the name of NVRTC itself: `libnvrtc.so`, `libnvrtc.so.13`, `libnvrtc.so.13.0.88`. The wheels'
/// `.alt.` twins have another soname and another build; they are never taken.
pub(crate) fn is_library_name(name: &str) -> bool {
    is_versioned(name, LIBRARY)
}

pub(crate) fn is_versioned(name: &str, stem: &str) -> bool {
    name.strip_prefix(stem).is_some_and(|rest| {
        rest.is_empty()
            || rest.strip_prefix('.').is_some_and(|numbers| numbers.split('.').all(|part| part.parse::<u32>().is_ok()))
    })
}

pub(crate) fn version_in_name(path: &Path, stem: &str) -> Option<Version> {
    Version::parse(path.file_name()?.to_str()?.strip_prefix(stem)?.strip_prefix('.')?)
}
