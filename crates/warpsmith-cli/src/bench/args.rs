//! The command line.

use warpsmith::spec::{Arch, Variant};

use crate::shared::wanted::Wanted;

/// Checks and then times kernels against what the device can do: medians over replays of a graph, operands not in the
/// L2 cache, launched plainly and as dependent launches. Without arguments it runs the built-in list.
///
/// Random operands as in the public NVFP4 benchmark, α = 1. Without a GPU (or with --arch) it compiles everything.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub wanted: Wanted,

    /// Pins the variant; several, with commas between, are timed on the same operands.
    #[arg(long, value_delimiter = ',')]
    pub variant: Vec<Variant>,

    /// Compiles for this architecture and launches nothing (a name that is none lists them).
    #[arg(long, value_name = "NAME")]
    pub arch: Option<Arch>,

    /// Which GPU.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: usize,
}
