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

/// So many further draws of rows are timed.
const FURTHER: u64 = 6;

/// Further draws of as many rows, if these are drawn.
pub fn further_rows(problem: &Problem, drawn: &[u32]) -> Result<Vec<Vec<u32>>> {
    let m = drawn.iter().sum();
    if problem.groups().is_none() || drawn_rows(problem, m, DRAW)? != drawn {
        return Ok(Vec::new());
    }
    Ok((1..=FURTHER).map(|more| drawn_rows(problem, m, DRAW + more)).collect::<warpsmith::Result<_>>()?)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_is_drawn_again_and_nothing_else() {
        let experts = Problem::gemm().n(64).k(64).grouped(16).experts_per_token(2);
        let first = rows(&experts, &[100]).unwrap();
        let further = further_rows(&experts, &first).unwrap();
        assert_eq!(further.len(), FURTHER as usize);
        for rows in &further {
            assert!(*rows != first && rows.len() == 16 && rows.iter().sum::<u32>() == 100, "{rows:?}");
        }
        assert_eq!(further, further_rows(&experts, &first).unwrap());
        assert!(further_rows(&experts, &[7; 16]).unwrap().is_empty());
        assert!(further_rows(&Problem::gemm().n(64).k(64), &[100]).unwrap().is_empty());
    }
}
