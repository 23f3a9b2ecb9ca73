//! The command line.

use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use warpsmith::spec::Arch;
use warpsmith_tune::Rest;

use crate::shared::times::{duty, seconds};

/// Makes every kernel that a manifest can need, and loads it if there is a GPU: run twice, the second time everything
/// comes from the disk.
///
/// With --tune it first measures which kernels these should be. Without a GPU (or with --arch) it compiles everything and
/// loads nothing.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The manifest; without one, that of the pack or, without a pack, the shapes of a large mixture-of-experts model.
    #[arg(value_name = "FILE")]
    pub manifest: Option<PathBuf>,

    /// Only says which kernels there are.
    #[arg(long)]
    pub list: bool,

    /// Checks and times kernels first, for so many seconds: a fair share for all that the manifest names, and what is left
    /// for those that are least sure. What there is no time for keeps its choice. Needs a GPU.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, conflicts_with_all = ["list", "arch", "rank", "of"])]
    pub tune: Option<Duration>,

    /// Chooses from this tuning table, where it says something; with --tune, merges what is found into it.
    #[arg(long, value_name = "FILE")]
    pub table: Option<PathBuf>,

    /// Takes kernels from this pack, and the tuning table, if no other is named; with --tune, puts there what it takes to
    /// serve: all kernels, the table and the manifest.
    #[arg(long, value_name = "FILE")]
    pub pack: Option<PathBuf>,

    /// With --tune: times calls of which each may begin while the one before it ends.
    #[arg(long, requires = "tune")]
    pub dependent: bool,

    /// With --tune: of the time between two comparisons, the share in which the GPU is timed at most; 1: no rests.
    #[arg(long, value_name = "SHARE", value_parser = duty, default_value_t = Rest::NORMAL.duty, requires = "tune")]
    pub duty: f64,

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
