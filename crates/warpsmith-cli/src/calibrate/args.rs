//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use warpsmith::spec::{Arch, Problem};
use warpsmith_tune::Launching;

use crate::shared::times::seconds;

/// Measures many variants of many problems on the device, for the heuristic's constants to be fitted to.
///
/// Every kernel is built, checked at the M in question, and only if it
/// is right timed briefly; the best ones are then timed again, in turn. Lines go to FILE as they are found.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where lines go to, or come from.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Continues FILE: what it has is not measured again, and what has least comes first.
    #[arg(long)]
    pub append: bool,

    /// The list of more pairs to look at picks with, none of which constants are fitted to, instead of the list.
    #[arg(long, conflicts_with = "problem")]
    pub held_out: bool,

    /// The list's problems of 16-bit tokens and prepared weights, with tokens in e4m3.
    #[arg(long, conflicts_with = "problem")]
    pub e4m3: bool,

    /// One's own problems instead of the list.
    #[arg(long, value_delimiter = ',')]
    pub problem: Vec<Problem>,

    /// Rows of A of one's own problems; they fall into groups as tokens choose experts.
    #[arg(long, value_delimiter = ',', requires = "problem", default_value = "1,16,64,256")]
    pub m: Vec<u32>,

    /// Every Nth problem of the list from the Ith on, such as 1/2: to share the list between devices.
    #[arg(long, value_name = "I/N", value_parser = part, default_value = "1/1")]
    pub part: (usize, usize),

    /// Variants for each problem and M that are measured if there is time, beside the best ones' neighbours.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub candidates: usize,

    /// First of all, whatever the time, the heuristic's best, the kernels that serve all M, and what the published rules say; they
    /// are timed again beside the best.
    #[arg(long)]
    pub also_rank: bool,

    /// Calls that are timed may begin while the one before still runs, as those of a layer.
    #[arg(long)]
    pub dependent: bool,

    /// Rounds of neighbours.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub rounds: usize,

    /// Wall-clock seconds, evenly spread over problems and M.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "540", overrides_with = "limit")]
    pub limit: Duration,

    /// Seed of the random choice among variants.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// Which GPU.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: usize,

    /// Measures nothing: fits the heuristic's constants to what FILE has that is not held out, so that picks lose least, and
    /// prints them; those that are there, if no fit picks better where it was not fitted.
    #[arg(long)]
    pub fit: bool,

    /// Rounds of the fit over all constants.
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub fit_rounds: usize,

    /// How often the fit throws the constants off and begins again.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub fit_again: usize,

    /// Starts the fit from the constants in this file, as --fit prints them, instead of those built in; in a campaign and for
    /// --regret, what is picked is picked by them.
    #[arg(long, value_name = "FILE")]
    pub constants: Option<PathBuf>,

    /// Measures nothing: prints how much slower than the best of FILE is what the heuristic and the published rules pick.
    #[arg(long)]
    pub regret: bool,

    /// Measures nothing: prints every variant of FILE with its prediction.
    #[arg(long)]
    pub residuals: bool,

    /// What FILE was measured on, for --fit, --regret and --residuals.
    #[arg(long, value_name = "NAME", default_value = "h200")]
    pub arch: Arch,

    /// This process uses the device itself.
    #[arg(long, hide = true)]
    pub worker: bool,

    /// Without a GPU: says what would be measured on this architecture, and builds nothing.
    #[arg(long, value_name = "NAME")]
    pub list: Option<Arch>,
}

impl Args {
    /// How calls that are timed follow each other.
    pub fn launching(&self) -> Launching {
        Launching::of(self.dependent)
    }
}

fn part(text: &str) -> Result<(usize, usize), String> {
    let parts = text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
    match parts {
        Some((index, count)) if (1..=count).contains(&index) => Ok((index, count)),
        _ => Err("expected I/N with I from 1 to N".to_owned()),
    }
}
