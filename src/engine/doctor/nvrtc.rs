//! The compiler that a cache finds.

use std::fmt;
use std::path::PathBuf;
use std::result::Result as StdResult;

use serde::Serialize;

use crate::cache::KernelCache;
use crate::error::Result;

/// The compiler.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct NvrtcFound {
    /// The library file.
    pub library: PathBuf,
    /// The library that compiling needs beside it.
    pub builtins: Option<PathBuf>,
    /// The version, as far as it is known.
    pub version: Option<String>,
    /// What cache keys call it.
    pub identity: String,
    /// Which of the places that were searched it was found in.
    pub origin: String,
    /// The architectures it compiles for, 90 for `sm_90a`; or why it cannot be opened.
    pub architectures: StdResult<Vec<u32>, String>,
}

impl NvrtcFound {
    #[cfg(feature = "compile")]
    pub(super) fn of(cache: &KernelCache) -> Result<Self> {
        let toolchain = cache.toolchain()?;
        Ok(Self {
            library: toolchain.library().to_owned(),
            builtins: toolchain.builtins().map(std::path::Path::to_owned),
            version: toolchain.version().map(|version| version.to_string()),
            identity: toolchain.identity().to_owned(),
            origin: toolchain.origin().to_owned(),
            architectures: toolchain.architectures().map_err(|error| error.to_string()),
        })
    }

    #[cfg(not(feature = "compile"))]
    pub(super) fn of(_: &KernelCache) -> Result<Self> {
        Err(crate::Error::missing_library("this program is built without warpsmith's feature `compile`"))
    }
}

impl fmt::Display for NvrtcFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { library, builtins, identity, origin, architectures, .. } = self;
        writeln!(f, "NVRTC     {identity} at {} ({origin})", library.display())?;
        match architectures {
            Ok(known) => {
                let known: Vec<_> = known.iter().map(|number| format!("sm_{number}")).collect();
                writeln!(f, "          compiles for {}", known.join(", "))?;
            }
            Err(why) => writeln!(f, "          cannot be opened: {why}")?,
        }
        match builtins {
            Some(_) => Ok(()),
            None => writeln!(f, "          libnvrtc-builtins is not beside it"),
        }
    }
}
