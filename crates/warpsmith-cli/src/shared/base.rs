//! What every example needs, with or without a device of its own.

use indicatif::{ProgressBar, ProgressStyle};
use warpsmith::spec::{Arch, Problem};
use warpsmith_tune::drawn_rows;

/// Everything in the examples ends in a sentence.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Whether the fastest kernels of an architecture take prepared weights: where there is the matrix path `wgmma`.
pub fn prepares(arch: &Arch) -> bool {
    arch.capability() == Arch::H200.capability()
}

/// The seed of rows that are drawn.
const DRAW: u64 = 0x5EED;

/// The rows of each group of a legal problem: as given, or drawn as tokens choose experts.
pub fn rows(problem: &Problem, given: &[u32]) -> Result<Vec<u32>> {
    problem.check()?;
    let groups = problem.groups().unwrap_or(1);
    // What is not legal has its error below.
    let whole = |m: u32| if problem.check_for(m).is_ok() { drawn_rows(problem, m, DRAW) } else { Ok(vec![m]) };
    let rows: Vec<u32> = match given {
        [] => whole(problem.m_limit().unwrap_or(256))?,
        [m] => whole(*m)?,
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

/// Prints what a shell completes the command with.
pub fn completions(shell: clap_complete::Shell, mut command: clap::Command) -> Result<bool> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "warpsmith", &mut script);
    super::print(format_args!("{}", String::from_utf8(script)?.trim_end()))?;
    Ok(true)
}
