//! What every example needs, with or without a device of its own.

use indicatif::{ProgressBar, ProgressStyle};
use warpsmith::internal::host_memory::available;
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

/// The rows of each group of a legal problem: as given, or drawn as tokens choose experts. What they take must find room in this host's
/// memory, where operands are drawn and results compared.
pub fn rows(problem: &Problem, given: &[u32]) -> Result<Vec<u32>> {
    problem.check()?;
    let groups = problem.groups().unwrap_or(1);
    let m: u64 = match given {
        [] => problem.m_limit().unwrap_or(256).into(),
        [m] => (*m).into(),
        rows if rows.len() == groups as usize => rows.iter().map(|rows| u64::from(*rows)).sum(),
        rows => return Err(format!("--m has {} numbers, expected 1 or {groups}", rows.len()).into()),
    };
    if m == 0 || m > u64::from(Problem::M_MAX) {
        return Err(format!("--m: {m} rows in all, must be 1 to {}", Problem::M_MAX).into());
    }
    has_room(problem, m, available())?;
    match given {
        [] | [_] => Ok(drawn_rows(problem, m as u32, DRAW)?),
        rows => Ok(rows.to_vec()),
    }
}

/// Whether operands, and the results of a kernel and of the reference, fit into so many bytes.
fn has_room(problem: &Problem, m: u64, bytes: Option<u64>) -> Result<()> {
    let results = 8.0 * m as f64 * f64::from(problem.columns());
    let needed = problem.bytes(m) + results;
    match bytes {
        Some(bytes) if needed > bytes as f64 => {
            let [needed, bytes] = [needed, bytes as f64].map(|bytes| bytes / 1e9);
            Err(format!(
                "--m: {m} rows of {problem} take {needed:.1} GB of this host's memory, {bytes:.1} GB are available"
            )
            .into())
        }
        _ => Ok(()),
    }
}

/// So many further draws of rows are timed.
pub const FURTHER: u64 = 6;

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
    fn rows_that_the_host_has_no_room_for_are_refused() {
        let problem = Problem::gemm().n(4096).k(4096);
        // A and C in f16, two results in f32, and the weights.
        let needed = |m: u64| m * 4096 * (2 + 2 + 8) + 4096 * 4096 / 16 * 9;
        assert!(has_room(&problem, 1 << 24, Some(needed(1 << 24))).is_ok());
        assert!(has_room(&problem, 1 << 24, None).is_ok());
        let error = has_room(&problem, 1 << 24, Some(needed(1 << 24) - 1)).unwrap_err().to_string();
        let said = "--m: 16777216 rows of gemm:f16*nvfp4>f16:n4096:k4096 take 824.6 GB of this host's memory, 824.6 GB are available";
        assert_eq!(error, said);
        for (given, said) in [(&[0][..], "--m: 0 rows in all"), (&[1, 2], "--m has 2 numbers, expected 1")] {
            assert!(rows(&problem, given).unwrap_err().to_string().starts_with(said));
        }
    }

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
