//! An NVRTC on disk: two files and the name that cache keys know them by.

use std::fmt;
use std::path::{Path, PathBuf};

use super::nvrtc::Nvrtc;
use super::search::Search;
use crate::{Error, Result};

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

    fn is_whole(&self) -> bool {
        self.patch.is_some()
    }

    /// `other` may be the same release, as far as both are known.
    fn agrees(&self, other: &Self) -> bool {
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

/// An NVRTC that was found on disk. Making one opens no library.
#[derive(Clone, Debug)]
pub struct Toolchain {
    library: PathBuf,
    builtins: Option<PathBuf>,
    version: Option<Version>,
    identity: String,
    origin: String,
}

impl Toolchain {
    /// The first NVRTC in the usual places; see [`Search`] for their order. Never downloads, never opens a library.
    ///
    /// # Errors
    /// Missing library; the text says where it was looked for and the remedy.
    pub fn find() -> Result<Self> {
        Search::from_env().find()
    }

    /// As [`Toolchain::find`]; where there is none, installs NVIDIA's wheel of NVRTC into the user's cache directory.
    ///
    /// # Errors
    /// Missing library, if there is none and pip could not install it.
    pub fn find_or_install() -> Result<Self> {
        Search::from_env().find_or_install()
    }

    /// The NVRTC at `path`: the library itself or a directory that holds it.
    ///
    /// # Errors
    /// Missing library, if `path` holds none.
    pub fn at(path: impl AsRef<Path>) -> Result<Self> {
        Search::nowhere().explicit(path.as_ref()).find()
    }

    /// Identifies the library file `library`, reached through `origin`.
    pub(crate) fn identify(library: &Path, origin: &str) -> Result<Self> {
        let read = |path: &Path, error: std::io::Error| {
            Error::missing_library(format!("NVRTC at {} cannot be read: {error}", path.display())).with_source(error)
        };
        let real = library.canonicalize().map_err(|error| read(library, error))?;
        let bytes = real.metadata().map_err(|error| read(&real, error))?.len();
        let named = version_in_name(&real, LIBRARY).or_else(|| version_in_name(library, LIBRARY));
        let version = match named {
            Some(version) if version.is_whole() => named,
            _ => wheel_version(&real, named).or(named),
        };
        let builtins = builtins_beside(&real, version);
        let version = match (version, builtins.as_deref().and_then(|path| version_in_name(path, BUILTINS))) {
            (Some(version), Some(finer)) if version.minor.is_none() && version.agrees(&finer) => Some(finer),
            (None, finer) => finer,
            (version, _) => version,
        };
        let builtins_bytes = match &builtins {
            Some(path) => path.metadata().map_err(|error| read(path, error))?.len(),
            None => 0,
        };
        let spelled = version.map_or_else(|| "unknown".to_owned(), |version| version.to_string());
        Ok(Self {
            identity: format!("nvrtc-{spelled}+{bytes}.{builtins_bytes}"),
            library: real,
            builtins,
            version,
            origin: origin.to_owned(),
        })
    }

    /// The library file, with links resolved.
    #[must_use]
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// The builtins library beside it, which compiling needs.
    #[must_use]
    pub fn builtins(&self) -> Option<&Path> {
        self.builtins.as_deref()
    }

    /// The version, as far as file names tell.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.version
    }

    /// What cache keys call it: version and file sizes, the same on every machine that has the same files.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Which of the searched places it was found in.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Whether this process has opened the library. Kernels from a cache do not need it.
    #[must_use]
    pub fn is_open(&self) -> bool {
        Nvrtc::is_open(self)
    }

    /// The architectures it compiles for, as numbers: 90 for `sm_90` and `sm_90a`. Opens the library.
    ///
    /// # Errors
    /// Missing library, if it cannot be opened.
    pub fn architectures(&self) -> Result<Vec<u32>> {
        Nvrtc::open(self)?.architectures()
    }
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} ({})", self.identity, self.library.display(), self.origin)
    }
}

pub(crate) const LIBRARY: &str = "libnvrtc.so";
const BUILTINS: &str = "libnvrtc-builtins.so";

/// Whether this is the name of NVRTC itself: `libnvrtc.so`, `libnvrtc.so.13`, `libnvrtc.so.13.0.88`. The wheels'
/// `.alt.` twins have another soname and another build; they are never taken.
pub(crate) fn is_library_name(name: &str) -> bool {
    is_versioned(name, LIBRARY)
}

fn is_versioned(name: &str, stem: &str) -> bool {
    name.strip_prefix(stem).is_some_and(|rest| {
        rest.is_empty()
            || rest.strip_prefix('.').is_some_and(|numbers| numbers.split('.').all(|part| part.parse::<u32>().is_ok()))
    })
}

pub(crate) fn version_in_name(path: &Path, stem: &str) -> Option<Version> {
    Version::parse(path.file_name()?.to_str()?.strip_prefix(stem)?.strip_prefix('.')?)
}

/// The version of the Python wheel that put the library where it is: `SITE/nvidia/cu13/lib/libnvrtc.so.13` belongs to
/// `SITE/nvidia_cuda_nvrtc-13.0.88.dist-info`. A site may hold the wheels of two majors; `named` tells them apart.
fn wheel_version(library: &Path, named: Option<Version>) -> Option<Version> {
    let site = library.parent()?.parent()?.parent()?.parent()?;
    let versions = site.read_dir().ok()?.filter_map(|entry| {
        let name = entry.ok()?.file_name();
        let rest = name.to_str()?.strip_prefix("nvidia_cuda_nvrtc")?.strip_suffix(".dist-info")?;
        Version::parse(rest.rsplit_once('-')?.1)
    });
    versions.filter(|version| named.is_none_or(|named| named.agrees(version))).max()
}

/// The builtins that belong to the library: same directory, same major and, where it is known, same minor.
fn builtins_beside(library: &Path, version: Option<Version>) -> Option<PathBuf> {
    let entries = library.parent()?.read_dir().ok()?;
    entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let name = path.file_name()?.to_str()?;
            let found = is_versioned(name, BUILTINS).then(|| version_in_name(&path, BUILTINS))??;
            version.is_none_or(|version| version.agrees(&found)).then_some((found, path))
        })
        .max()
        .and_then(|(_, path)| path.canonicalize().ok())
}
