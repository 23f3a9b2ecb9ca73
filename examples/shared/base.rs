//! What every example needs, with or without a device of its own.

use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use tracing_subscriber::EnvFilter;
use warpsmith::spec::{Arch, Problem};

/// Everything in the examples ends in a sentence.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Logs to stderr as `RUST_LOG` says, runs the program, and says how it ended: 0 if everything is right, 1 if not, 2 if it
/// could not be found out.
pub fn exit(run: impl FnOnce() -> Result<bool>) -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

/// Whether the fastest kernels of an architecture take prepared weights: where there is the matrix path `wgmma`.
pub fn prepares(arch: &Arch) -> bool {
    arch.capability() == Arch::H200.capability()
}

/// The rows of each group: as given, or shared out evenly.
pub fn rows(problem: &Problem, given: &[u32]) -> Result<Vec<u32>> {
    let groups = problem.groups().unwrap_or(1);
    let whole = |m: u32| (0..groups).map(|group| m / groups + u32::from(group < m % groups)).collect();
    let rows: Vec<u32> = match given {
        [] => whole(problem.m_limit().unwrap_or(256)),
        [m] => whole(*m),
        rows if rows.len() == groups as usize => rows.to_vec(),
        rows => return Err(format!("--m has {} numbers, expected 1 or {groups}", rows.len()).into()),
    };
    let m: u64 = rows.iter().map(|rows| u64::from(*rows)).sum();
    if m == 0 || m > u64::from(Problem::M_MAX) {
        return Err(format!("--m: {m} rows in all, must be 1 to {}", Problem::M_MAX).into());
    }
    Ok(rows)
}

/// A progress bar on stderr.
pub fn bar(length: usize, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg} [{elapsed}]");
    let bar = ProgressBar::new(length as u64).with_message(what);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
