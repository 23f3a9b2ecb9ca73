//! The command line.

use clap::value_parser;
use warpsmith::spec::{Arch, Combine, Route, Variant};

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

    /// Routers instead of products, such as route.softmax:bf16:e128:k8:renormalised.
    #[arg(long, value_delimiter = ',', group = "layer", conflicts_with_all = ["variant", "problem", "only", "unprepared"])]
    pub route: Vec<Route>,

    /// Combiners instead of products, such as combine:f16>f16:h7168:k8:weighted.
    #[arg(long, value_delimiter = ',', group = "layer", conflicts_with_all = ["variant", "problem", "only", "unprepared"])]
    pub combine: Vec<Combine>,

    /// Numbers of tokens for routers and combiners.
    #[arg(long, value_delimiter = ',', requires = "layer", value_parser = value_parser!(u32).range(1..=1 << 20))]
    pub tokens: Vec<u32>,

    /// Compiles for this architecture and launches nothing (a name that is none lists them).
    #[arg(long, value_name = "NAME")]
    pub arch: Option<Arch>,

    /// Which GPU.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: usize,
}
