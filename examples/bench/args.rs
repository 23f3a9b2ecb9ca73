//! The command line.

use std::path::PathBuf;

use clap::Parser;
use warpsmith::spec::{Arch, Problem, Variant};

use crate::list::Part;

/// Checks and then times kernels against what the device can do: medians over replays of a graph, operands not in the
/// L2 cache, launched plainly and as dependent launches. Without arguments it runs the built-in list.
///
/// Random operands as in the public NVFP4 benchmark, α = 1. Without a GPU (or with --arch) it compiles everything.
#[derive(Debug, Parser)]
#[command(name = "bench", version)]
pub struct Args {
    /// One's own problems instead of the list, such as dual_gemm.silu:f16*nvfp4>f16:n4096:k7168:prepared.
    #[arg(long, value_delimiter = ',')]
    pub problem: Vec<Problem>,

    /// Rows of A, several one after the other; for grouped problems the rows of each group (one number: shared out
    /// evenly).
    #[arg(long, value_delimiter = ',', requires = "problem")]
    pub m: Vec<u32>,

    /// Only these parts of the list.
    #[arg(long, value_delimiter = ',', conflicts_with = "problem")]
    pub only: Vec<Part>,

    /// The list with weights as they are given, also where they would be prepared.
    #[arg(long, conflicts_with = "problem")]
    pub unprepared: bool,

    /// Pins the variant; several, with commas between, are timed on the same operands.
    #[arg(long, value_delimiter = ',')]
    pub variant: Vec<Variant>,

    /// Writes everything to this file, too, in the form of docs/measurements/ratios.py.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Compiles for this architecture and launches nothing: h200, h100, a100, l40s, b200, rtx5090.
    #[arg(long, value_name = "NAME")]
    pub arch: Option<Arch>,

    /// Which GPU.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: usize,
}
