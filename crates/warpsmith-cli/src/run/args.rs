//! The command line.

use std::path::PathBuf;

use clap::ArgGroup;
use warpsmith::format::{Format, ScaleLayout};
use warpsmith::spec::{Activation, Arch, Problem, Variant};

/// From a problem to a checked and timed result: picks a variant, renders, compiles, launches, compares every element
/// with the host reference, and only then times it. Without arguments it runs the built-in suite.
///
/// Without a GPU (or with --arch) it compiles and shows resources, and computes the result on the host reference.
// An option that requires another conflicts with whatever that one conflicts with: clap waives the requirement there.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("own").args(["problem", "operands"]))]
pub struct Args {
    /// One problem instead of the suite, such as dual_gemm.silu:f16*nvfp4>f16:n4096:k7168.
    #[arg(long)]
    pub problem: Option<Problem>,

    /// Rows of A; for a grouped problem the rows of each group, such as 80,176,128 (one number:
    /// drawn as tokens choose experts).
    #[arg(long, value_delimiter = ',', requires = "problem", conflicts_with_all = ["operands", "unprepared"])]
    pub m: Vec<u32>,

    /// Pins the variant, such as mma.t64x128x64.s3.interleaved.uniform.direct; several, with commas between, are shown
    /// as a ladder from the first.
    #[arg(long, value_delimiter = ',')]
    pub variant: Vec<Variant>,

    /// `all`: every legal variant of --problem or --operands, as a ladder from the baseline.
    #[arg(long, value_name = "all", requires = "own", conflicts_with = "variant")]
    pub variants: Option<Variants>,

    /// With --variants all: only every N-th of them (and the baseline).
    #[arg(long, value_name = "N", default_value_t = 1, requires = "variants", conflicts_with = "variant")]
    pub every: usize,

    /// Takes the weights of the suite or of --operands as they are given, also where they would be prepared (on sm_90).
    #[arg(long, conflicts_with = "problem")]
    pub unprepared: bool,

    /// Times calls that may begin while the one before still runs (programmatic dependent launch).
    #[arg(long)]
    pub dependent: bool,

    /// Checks, and times nothing.
    #[arg(long, conflicts_with = "dependent")]
    pub untimed: bool,

    /// Writes source, PTX, cubin and compile log of every kernel to this directory.
    #[arg(long, value_name = "DIR")]
    pub dump: Option<PathBuf>,

    /// Works without a GPU, for this architecture (a name that is none lists them).
    #[arg(long, value_name = "NAME")]
    pub arch: Option<Arch>,

    /// Real operands, as a safetensors file: a, a_scale, b (or b1, b2), b_scale, alpha, offsets.
    #[arg(long, value_name = "FILE")]
    pub operands: Option<PathBuf>,

    /// Where the result of --operands goes: a safetensors file with c. Of several variants that of the first that is right.
    #[arg(long, value_name = "FILE", requires = "operands", conflicts_with = "problem")]
    pub out: Option<PathBuf>,

    /// How the block scales of --operands lie: linear or 128x4.
    #[arg(long, default_value_t = ScaleLayout::Linear, requires = "operands", conflicts_with = "problem")]
    pub scales: ScaleLayout,

    /// Activation of --operands: of a dual GEMM silu (unless said otherwise), silu_clampL, gelu_tanh, gelu, swiglu_oai or
    /// none; of a GEMM none, silu, gelu_tanh, gelu or relu2.
    #[arg(long, requires = "operands", conflicts_with = "problem")]
    pub act: Option<Activation>,

    /// Result format for --operands: f16, bf16, f32 or nvfp4.
    #[arg(
        long = "c",
        value_name = "FORMAT",
        default_value_t = Format::F16,
        requires = "operands",
        conflicts_with = "problem"
    )]
    pub c: Format,

    /// Which GPU.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: usize,
}

/// What `--variants` takes.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Variants {
    /// The whole legal space.
    All,
}

impl Args {
    /// Whether variants are compared with each other.
    pub fn is_ladder(&self) -> bool {
        self.variants.is_some() || self.variant.len() > 1
    }
}
