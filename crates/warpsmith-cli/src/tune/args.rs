//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::value_parser;
use jiff::civil::Date;
use warpsmith::spec::Variant;
use warpsmith_layers::LayerConfig;
use warpsmith_tune::{Budget, Rest};

use crate::shared::layers::layer;
use crate::shared::times::{duty, seconds};
use crate::shared::wanted::Wanted;

/// Chooses kernels by measurement: for each problem and M, candidates are built, checked and timed against what is chosen
/// now, in a worker process that may crash. What is found goes into a tuning table, with its evidence.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub wanted: Wanted,

    /// How far to search for each problem and M: quick (seconds), normal (minutes), exhaustive (hours).
    #[arg(long, default_value_t = Budget::Quick)]
    pub budget: Budget,

    /// Seconds for each problem and M at most, instead of the budget's.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub limit: Option<Duration>,

    /// Variants that are tried, too, with commas between, before those that are predicted to be fast; of each problem those that are
    /// legal for it.
    #[arg(long, value_delimiter = ',', conflicts_with = "within")]
    pub variant: Vec<Variant>,

    /// All that this manifest names instead of a list, at the M at which its choices change.
    #[arg(long, value_name = "FILE", requires = "within", group = "whole", conflicts_with_all = ["problem", "m", "only", "unprepared"])]
    pub manifest: Option<PathBuf>,

    /// The products of whole layers instead of a list: names such as qwen3-30b, or spellings such as
    /// mlp.silu:bf16:h4096:i14336. Rows fall to experts as tokens choose them.
    #[arg(long, value_delimiter = ',', value_parser = layer, group = "whole", conflicts_with_all = ["problem", "m", "only", "unprepared"])]
    pub layer: Vec<LayerConfig>,

    /// The decisions of --table on this model of device from before this day (UTC, such as 2026-11-24) instead of a list, each at the most
    /// rows that it is for: kernels may have changed since. With --budget or --limit what is decided is for the same rows.
    #[arg(long, value_name = "DAY", requires = "table", group = "whole", conflicts_with_all = ["problem", "m", "only", "unprepared"])]
    pub again: Option<Date>,

    /// Numbers of tokens for the layers; without this 1, 8, 32, 128, 1024 and 8192.
    #[arg(long, value_delimiter = ',', requires = "layer", value_parser = value_parser!(u32).range(1..))]
    pub tokens: Vec<u32>,

    /// Seconds for all of the manifest, the layers or the decisions: a fair share each, and what is left for those that are least sure. What
    /// there is no time for keeps its choice. A decision is for the rows down to half of its own, one at up to 8 rows for all
    /// that are fewer.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, requires = "whole", conflicts_with_all = ["budget", "limit"])]
    pub within: Option<Duration>,

    /// Of the time between two comparisons, the share in which the GPU is timed at most. It rests in the others, so that a
    /// hot one decides like a cool one; 1: no rests.
    #[arg(long, value_name = "SHARE", value_parser = duty, default_value_t = Rest::NORMAL.duty)]
    pub duty: f64,

    /// Times calls of which each may begin while the one before it ends.
    #[arg(long)]
    pub dependent: bool,

    /// Chooses from this tuning table, where it says something, and merges what is found into it.
    #[arg(long, value_name = "FILE")]
    pub table: Option<PathBuf>,

    /// Writes a report with charts to this file: one HTML file that needs no other.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Forgets first which kernels were refused before (docs/choosing.md), on whatever device.
    #[arg(long)]
    pub clear_quarantine: bool,

    /// Which GPU.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: usize,
}
