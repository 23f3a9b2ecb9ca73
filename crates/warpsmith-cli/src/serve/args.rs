//! The command line.

use std::time::Duration;

use warpsmith::spec::Arch;

use crate::shared::times::seconds;

/// A serving loop in miniature: warms up, seals, then serves steps of changing M from many threads, each with a stream and
/// a captured graph, while a shape that nobody expected is compiled behind it.
///
/// Without a GPU (or with --arch) it compiles what it would need and serves nothing.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Threads that serve, each with a stream.
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub threads: usize,

    /// How long to serve before, and again after, the unexpected shapes.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "2")]
    pub seconds: Duration,

    /// Width of the model.
    #[arg(long, value_name = "N", default_value_t = 2048)]
    pub hidden: u32,

    /// Width of its MLP.
    #[arg(long, value_name = "N", default_value_t = 1536)]
    pub intermediate: u32,

    /// The most tokens of a step.
    #[arg(long, value_name = "M", default_value_t = 512)]
    pub tokens: u32,

    /// Tokens of the step that nobody expected.
    #[arg(long, value_name = "M", default_value_t = 4096)]
    pub surprise: u32,

    /// Shapes that nobody expected.
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub shapes: u32,

    /// Keeps no kernel on disk, so that all of them, also those that nobody expected, are compiled at every start.
    #[arg(long)]
    pub no_disk: bool,

    /// Compiles for this architecture and serves nothing (a name that is none lists them).
    #[arg(long, value_name = "NAME")]
    pub arch: Option<Arch>,

    /// Which GPU.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: usize,
}
