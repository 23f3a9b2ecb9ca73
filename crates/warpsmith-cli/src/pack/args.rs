//! The command line.

use std::path::PathBuf;

use warpsmith::spec::{Arch, Problem, Variant};

/// What only making a pack takes.
const MAKING: [&str; 6] = ["problem", "problems", "variant", "tuning", "manifest", "sign"];

/// Puts the kernels of a list of problems, for a list of architectures, into one file. Needs no GPU.
///
/// What each problem is given: the kernel that is picked for each --m, and for prepared weights the kernel that prepares
/// them; what a manifest is given: every kernel that it can need. A kernel that is in the cache is not compiled again.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where the pack goes, or with --show where it is.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// A problem, such as dual_gemm.silu:f16*nvfp4>f16:n4096:k7168:prepared. May be given several times.
    #[arg(long, value_name = "PROBLEM", required_unless_present_any = ["problems", "manifest", "show"])]
    pub problem: Vec<Problem>,

    /// A file with a problem on each line; what follows a # is left out.
    #[arg(long, value_name = "FILE")]
    pub problems: Option<PathBuf>,

    /// Architectures (a name that is none lists them).
    #[arg(long, value_delimiter = ',', default_value = "h200")]
    pub arch: Vec<Arch>,

    /// Rows (of all groups together) to pick a kernel for.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128,256,512,1024,2048,4096,8192")]
    pub m: Vec<u32>,

    /// These variants instead of those that are picked.
    #[arg(long, value_delimiter = ',')]
    pub variant: Vec<Variant>,

    /// A tuning table to put beside the kernels.
    #[arg(long, value_name = "FILE")]
    pub tuning: Option<PathBuf>,

    /// A manifest: all kernels that it needs, by the tuning table, and itself beside them.
    #[arg(long, value_name = "FILE")]
    pub manifest: Option<PathBuf>,

    /// Signs the pack with the ed25519 secret key in this file (32 bytes), and prints the public one.
    #[arg(long, value_name = "FILE")]
    pub sign: Option<PathBuf>,

    /// Shows what is in a pack, and checks all of it, instead of making one.
    #[arg(long, conflicts_with_all = MAKING)]
    pub show: bool,

    /// With --show: refuses a pack that is not signed by the key with this public half, in hexadecimal.
    // Clap waives what is required where it conflicts with something.
    #[arg(long, value_name = "KEY", requires = "show", conflicts_with_all = MAKING)]
    pub signer: Option<String>,
}
