//! The compiler of a cache.

use once_cell::sync::OnceCell;

use crate::Result;
use crate::build::{self, Cubin, Source, Toolchain};

/// Which toolchain, and the toolchain, once it is found.
#[derive(Debug, Default)]
pub(super) struct Compiler {
    choice: CompilerChoice,
    toolchain: OnceCell<Toolchain>,
}

#[derive(Debug, Default)]
enum CompilerChoice {
    #[default]
    Find,
    FindOrInstall,
}

impl Compiler {
    pub(super) fn given(toolchain: Toolchain) -> Self {
        Self { choice: CompilerChoice::Find, toolchain: OnceCell::with_value(toolchain) }
    }

    pub(super) fn found_or_installed() -> Self {
        Self { choice: CompilerChoice::FindOrInstall, toolchain: OnceCell::new() }
    }

    pub(super) fn toolchain(&self) -> Result<&Toolchain> {
        self.toolchain.get_or_try_init(|| match self.choice {
            CompilerChoice::Find => Toolchain::find(),
            CompilerChoice::FindOrInstall => Toolchain::find_or_install(),
        })
    }

    /// What cache keys call it. Opens no library.
    pub(super) fn identity(&self) -> Result<&str> {
        self.toolchain().map(Toolchain::identity)
    }

    pub(super) fn compile(&self, source: &Source, target: &str) -> Result<Cubin> {
        build::compile(self.toolchain()?, source, target)
    }
}
