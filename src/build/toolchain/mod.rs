//! An NVRTC on disk: two files and the name that cache keys know them by.

use std::fmt;
use std::path::{Path, PathBuf};

mod install;
mod nvrtc;
mod pip;
mod search;
mod shared_object;
mod version;
mod wheel;

pub(in crate::build) use nvrtc::{Compiled, Nvrtc};
pub use search::Search;
pub use version::Version;

use self::shared_object::SharedObject;
use self::version::{BUILTINS, LIBRARY, is_versioned, version_in_name};
use crate::trust::{self, Untrusted};
use crate::{Error, Result};

/// An NVRTC that was found on disk, where nobody else can write to it. Making one opens no library.
#[derive(Clone, Debug)]
pub struct Toolchain {
    library: PathBuf,
    builtins: Option<PathBuf>,
    version: Option<Version>,
    identity: String,
    origin: String,
}

/// Why an NVRTC is not opened, and what helps.
#[derive(Debug)]
pub(super) struct Unfit {
    pub(super) why: String,
    remedy: &'static str,
}

impl From<Unfit> for Error {
    fn from(Unfit { why, remedy }: Unfit) -> Self {
        Self::missing_library(format!("{why}; remedy: {remedy}"))
    }
}

/// What helps against files that cannot be opened as they are.
const WHOLE: &str = "a whole NVRTC for this machine";
const PRIVATE: &str = "take the others' right to write (`chmod go-w`) and let you or root own it, or copy the library and its \
                       builtins to a directory of your own";
const BESIDE: &str = "copy it there from the same release, or `pip install nvidia-cuda-nvrtc` and set WARPSMITH_NVRTC to \
                      its directory";

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
    /// Missing library, if `path` holds none, or one that others can write to.
    pub fn at(path: impl AsRef<Path>) -> Result<Self> {
        Search::nowhere().explicit(path.as_ref()).find()
    }

    /// Identifies the library file `library`, reached through `origin`.
    pub(super) fn identify(library: &Path, origin: &str) -> Result<Self, Unfit> {
        let read = |path: &Path, error: std::io::Error| Unfit {
            why: format!("NVRTC at {} cannot be read: {error}", path.display()),
            remedy: WHOLE,
        };
        let real = library.canonicalize().map_err(|error| read(library, error))?;
        let bytes = real.metadata().map_err(|error| read(&real, error))?.len();
        let named = version_in_name(&real, LIBRARY).or_else(|| version_in_name(library, LIBRARY));
        let version = match named {
            Some(version) if version.is_whole() => named,
            _ => wheel::version_of(&real, named).or(named),
        };
        let builtins = builtins_beside(&real, version);
        let version = match (version, builtins.as_deref().and_then(|path| version_in_name(path, BUILTINS))) {
            (Some(version), Some(finer)) if version.minor().is_none() && version.agrees(&finer) => Some(finer),
            (None, finer) => finer,
            (version, _) => version,
        };
        [Some(&real), builtins.as_ref()].into_iter().flatten().try_for_each(|file| check_trust(file))?;
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

    /// Both files, if nobody else can write to them and they are whole: what may be opened now.
    fn openable(&self) -> Result<[(&Path, SharedObject); 2], Unfit> {
        let builtins = self.builtins().ok_or_else(|| Unfit {
            why: format!(
                "libnvrtc-builtins.so.* is not beside {}, and NVRTC compiles nothing without it",
                self.library.display()
            ),
            remedy: BESIDE,
        })?;
        [builtins, &self.library].into_iter().try_for_each(check_trust)?;
        Ok([(builtins, whole(builtins)?), (&self.library, whole(&self.library)?)])
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

/// Refuses a library that others could change: its initialisers run in this process when it is opened.
fn check_trust(path: &Path) -> Result<(), Unfit> {
    trust::check_path(path).map_err(|untrusted| Unfit::untrusted(path, &untrusted))
}

fn whole(path: &Path) -> Result<SharedObject, Unfit> {
    SharedObject::read(path)
        .map_err(|why| Unfit { why: format!("{} cannot be opened: {why}", path.display()), remedy: WHOLE })
}

impl Unfit {
    pub(super) fn untrusted(path: &Path, untrusted: &Untrusted) -> Self {
        let path = path.display();
        Self { why: format!("{path} is not opened, since others could change it: {untrusted}"), remedy: PRIVATE }
    }
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
