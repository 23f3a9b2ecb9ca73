//! The command line.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use warpsmith_checkpoint::{Factors, Layout, Scales};

/// Makes an NVFP4 checkpoint of a folder with a model in f16, bf16 or f32: its linear layers are quantised, everything else is
/// copied. Needs no GPU; with one (--device) the bytes are the same.
///
/// Whoever stops it starts it again with the same arguments: it goes on, and the bytes are those of a run that was not
/// stopped. One run has a folder at a time; another is refused.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The model: config.json and one or many safetensors files.
    #[arg(value_name = "DIR")]
    pub from: PathBuf,

    /// Where the checkpoint goes: a folder that is not there, is empty, or was begun with the same arguments.
    #[arg(value_name = "OUT")]
    pub to: PathBuf,

    /// Whose names of tensors and whose configuration it has: modelopt or compressed-tensors.
    #[arg(long, value_name = "NAME", default_value_t = Layout::ModelOpt)]
    pub layout: Layout,

    /// Leaves modules of these names, and what is in them, as they are; * stands for anything.
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    pub exclude: Vec<String>,

    /// How a block's scale is chosen: search (the least squared error) or largest (its largest magnitude becomes 6).
    #[arg(long, value_name = "RULE", default_value_t = Scales::Search)]
    pub scales: Scales,

    /// Whether what engines make one product of (q, k, v; gate, up) has one factor: shared or own.
    #[arg(long, value_name = "CHOICE", default_value_t = Factors::Shared)]
    pub factors: Factors,

    /// Which GPU quantises, instead of the CPU.
    #[arg(long, value_name = "N")]
    pub device: Option<usize>,

    /// Threads that quantise, or with --device copy to it [default: as many as there are cores].
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
}
