//! The command line.

use std::path::PathBuf;

use warpsmith::format::Format;
use warpsmith::spec::{Arch, Problem};

/// Runs the proposals of the debate that this project began with as experiments on a GPU, each against the baseline:
/// pipeline stages, tile sizes, warp specialisation, fusions, TMA stores.
///
/// Every kernel is checked before it is timed; those that are compared are timed in turn, with operands that are not in
/// the L2 cache. Without a GPU (or with --arch) it compiles everything and says what it takes of an SM.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// One's own problems instead of the benchmark's, such as dual_gemm.silu:f16*nvfp4>f16:n4096:k7168:prepared.
    #[arg(long, value_delimiter = ',')]
    pub problem: Vec<Problem>,

    /// Rows of A; for grouped problems the rows of each group (one number: drawn as tokens choose experts).
    // These conflict with --problem, whose requirement clap waives where one of them is.
    #[arg(long, value_delimiter = ',', requires = "problem", conflicts_with_all = ["tokens", "unprepared"])]
    pub m: Vec<u32>,

    /// The tokens' format in the benchmark's problems.
    #[arg(long, value_name = "FORMAT", default_value_t = Format::Nvfp4, conflicts_with = "problem")]
    pub tokens: Format,

    /// The benchmark's problems with weights as they are given, by the path mma, also where they would be prepared.
    #[arg(long, conflicts_with = "problem")]
    pub unprepared: bool,

    /// Launches calls so that each may begin while the one before it ends.
    #[arg(long)]
    pub dependent: bool,

    /// Times that kernels take turns.
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(3..=1000))]
    pub turns: u32,

    /// Writes a report with charts to this file: one HTML file that needs no other.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Compiles for this architecture and launches nothing (a name that is none lists them).
    #[arg(long, value_name = "NAME")]
    pub arch: Option<Arch>,

    /// Which GPU.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: usize,
}
