//! The command line.

use clap::value_parser;
use warpsmith::spec::{Arch, Problem, Route, Variant};

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
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["variant", "problem", "only", "unprepared"])]
    pub route: Vec<Route>,

    /// Numbers of tokens for routers.
    #[arg(long, value_delimiter = ',', requires = "route", value_parser = value_parser!(u32).range(1..=i64::from(Problem::M_MAX)))]
    pub tokens: Vec<u32>,

    /// Compiles for this architecture and launches nothing (a name that is none lists them).
    #[arg(long, value_name = "NAME")]
    pub arch: Option<Arch>,

    /// Which GPU.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: usize,
}
