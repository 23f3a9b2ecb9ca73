//! The command line.

use std::num::NonZero;
use std::path::PathBuf;

use warpsmith::spec::Arch;

/// Makes every kernel that a manifest can need, and loads it if there is a GPU: run twice, the second time everything
/// comes from the disk.
///
/// Without a GPU (or with --arch) it compiles everything and loads nothing.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The manifest; without one, the shapes of a large mixture-of-experts model.
    #[arg(value_name = "FILE")]
    pub manifest: Option<PathBuf>,

    /// Only says which kernels there are.
    #[arg(long)]
    pub list: bool,

    /// Threads at most; without this, one a core.
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZero<usize>>,

    /// Memory that may be used; without this, half of what is available.
    #[arg(long, value_name = "GIB")]
    pub memory: Option<u64>,

    /// Keeps kernels in this directory instead of the user's cache.
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,

    /// Which process this is, of --of that share a manifest and a cache.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub rank: usize,

    /// How many processes share the work.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub of: usize,

    /// Asks for so many kernels at random M of the manifest afterwards, sealed.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub calls: u32,

    /// Compiles for this architecture and loads nothing (a name that is none lists them).
    #[arg(long, value_name = "NAME")]
    pub arch: Option<Arch>,

    /// Which GPU.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: usize,
}
