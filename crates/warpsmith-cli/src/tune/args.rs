//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use warpsmith_tune::Budget;

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

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("`{text}` is no number"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}
