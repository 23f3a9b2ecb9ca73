//! Whether a GPU computes what the kernels made for it promise: one tile of each configuration, then a suite, each kernel in a
//! process of its own, and one report of all of it.
//!
//! ```text
//! warpsmith verify --out report.json
//! ```

mod cases;
#[cfg(test)]
mod page;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde::Serialize;
use warpsmith::cache::KernelCache;
use warpsmith::internal::child;
use warpsmith::pick::Choice;
use warpsmith::run::{Device, DriverVersion};
use warpsmith::spec::{Problem, Variant};
use warpsmith_tune::{HostOperands, Spread, Trial};

use crate::shared::gpu::Gpu;
use crate::shared::times::SECONDS_MAX;
use crate::shared::{Result, bar, document, rows, say};
use cases::Case;

/// Checks on a GPU what was made without one: one tile of each configuration first, then variants of every family, each in a
/// process of its own, which may hang or crash. Writes one report of everything, to be sent back
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which GPU.
    #[arg(long, value_name = "N", default_value_t = 0)]
    device: usize,

    /// Variants of each family, beside the first tiles.
    #[arg(long, value_name = "N", default_value_t = 6)]
    samples: usize,

    /// Only cases in whose problem or variant this stands, such as tcgen05 or grouped.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,

    /// Seconds that a case may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    limit: u64,

    /// Seconds after which no further case is begun; the report says how many are left. Without this all are checked.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    within: Option<u64>,

    /// Cases at a time. A kernel that hangs a GPU takes those beside it with it.
    #[arg(long, value_name = "N", default_value_t = NonZeroUsize::MIN)]
    jobs: NonZeroUsize,

    /// Where the report goes, as JSON.
    #[arg(long, value_name = "FILE", default_value = "warpsmith-verify.json")]
    out: PathBuf,

    /// What one of those processes checks.
    #[arg(long, hide = true, num_args = 3, value_names = ["PROBLEM", "M", "VARIANT"])]
    case: Option<Vec<String>>,
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome", content = "said")]
enum Outcome {
    /// Every element is within its bound: the largest error, as a share of that.
    Right(String),
    Wrong(String),
    /// It could not be built or launched, or its process died.
    Failed(String),
    /// It took longer than it may, and was ended.
    Hung,
}

#[derive(Debug, Serialize)]
struct Row {
    problem: String,
    m: u32,
    variant: String,
    is_tile: bool,
    #[serde(flatten)]
    outcome: Outcome,
    ms: u128,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    version: &'static str,
    device: &'a str,
    capability: String,
    sms: u32,
    driver: String,
    nvrtc: String,
    date: String,
    right: usize,
    of: usize,
    /// Cases that there was no time for.
    left: usize,
    cases: &'a [Row],
    /// What tells more of a case that is not right.
    next: Vec<String>,
}

/// Marks the line of a child that tells the outcome.
const SAID: &str = "verified: ";
/// How many that are not right are told in prose.
const TOLD: usize = 20;

/// Whether everything is right.
pub fn run(args: &Args) -> Result<bool> {
    if let Some(case) = &args.case {
        return check(args, case);
    }
    let device = Device::open(args.device)?;
    say!("{device}")?;
    let cache = KernelCache::builder().install_if_missing().build();
    let nvrtc = cache.toolchain()?.to_string();
    say!("NVRTC: {nvrtc}")?;
    let has =
        |case: &Case, text: &str| case.problem.to_string().contains(text) || case.variant.to_string().contains(text);
    let mut cases = cases::cases(device.arch(), args.samples);
    cases.retain(|case| args.only.as_ref().is_none_or(|text| has(case, text)));
    if cases.is_empty() {
        return Err(format!("--only {}: no case has that", args.only.as_deref().unwrap_or_default()).into());
    }
    let tiles = cases.iter().filter(|case| case.is_tile).count();
    say!("{tiles} configurations, a tile of each first; then {} kernels", cases.len() - tiles)?;

    let progress = bar(cases.len(), "kernels checked");
    // All tiles come before all others, also where several cases are checked at a time.
    let (tiles, suite) = cases.split_at(tiles);
    let end = args.within.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut rows = rows_of(args, tiles, end, &progress)?;
    rows.extend(rows_of(args, suite, end, &progress)?);
    progress.finish_and_clear();
    finish(args, &device, nvrtc, &rows, cases.len() - rows.len())
}

/// What became of cases, in their order: of those that were begun before the end.
fn rows_of(args: &Args, cases: &[Case], end: Option<Instant>, progress: &ProgressBar) -> Result<Vec<Row>> {
    let next = AtomicUsize::new(0);
    let (done, rows) = mpsc::channel();
    let check = |done: Sender<_>| {
        while end.is_none_or(|end| Instant::now() < end)
            && let index = next.fetch_add(1, Relaxed)
            && let Some(case) = cases.get(index)
        {
            // Whoever collects outlives this.
            let _ = done.send((index, row_of(args, case)));
            progress.inc(1);
        }
    };
    thread::scope(|scope| {
        for _ in 0..args.jobs.get() {
            let done = done.clone();
            scope.spawn(|| check(done));
        }
    });
    drop(done);
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_unstable_by_key(|(index, _)| *index);
    rows.into_iter().map(|(_, row)| row).collect()
}

fn row_of(args: &Args, case: &Case) -> Result<Row> {
    let start = Instant::now();
    let outcome = outcome(args, case)?;
    let Case { problem, m, variant, is_tile } = case;
    let (problem, variant) = (problem.to_string(), variant.to_string());
    Ok(Row { problem, m: *m, variant, is_tile: *is_tile, outcome, ms: start.elapsed().as_millis() })
}

fn finish(args: &Args, device: &Device, nvrtc: String, rows: &[Row], left: usize) -> Result<bool> {
    let right = rows.iter().filter(|row| matches!(row.outcome, Outcome::Right(_))).count();
    let bad: Vec<&Row> = rows.iter().filter(|row| !matches!(row.outcome, Outcome::Right(_))).collect();
    for Row { problem, m, variant, outcome, .. } in bad.iter().take(TOLD) {
        say!("{problem}, m = {m}, {variant}: {outcome:?}")?;
    }
    if bad.len() > TOLD {
        say!("and {} more", bad.len() - TOLD)?;
    }
    // The first that is wrong, or else one that is not.
    let shown = bad.first().copied().or(rows.first());
    let command = |row: &Row| {
        format!("warpsmith verify --device {} --case '{}' {} {}", args.device, row.problem, row.m, row.variant)
    };
    let tools = ["memcheck", "racecheck", "synccheck"];
    let next = shown.map(command).map(|command| tools.map(|tool| format!("compute-sanitizer --tool {tool} {command}")));
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        device: device.name(),
        capability: device.arch().capability().to_string(),
        sms: device.arch().sms(),
        driver: DriverVersion::installed()?.to_string(),
        nvrtc,
        date: jiff::Timestamp::now().to_string(),
        right,
        of: rows.len(),
        left,
        cases: rows,
        next: next.into_iter().flatten().collect(),
    };
    warpsmith::internal::file::write(&args.out, serde_json::to_string_pretty(&report)?.as_bytes())?;
    document(&report)?;
    say!("{right} of {} right; the report is {}", rows.len(), args.out.display())?;
    if left > 0 {
        say!("{left} more were not checked: the time was up")?;
    }
    for hint in &report.next {
        say!("to see more: {hint}")?;
    }
    Ok(bad.is_empty() && !rows.is_empty())
}

/// Lets a process check a case.
fn outcome(args: &Args, case: &Case) -> Result<Outcome> {
    let Case { problem, m, variant, .. } = case;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["verify", "--device", &args.device.to_string(), "--case"]);
    command.args([problem.to_string(), m.to_string(), variant.to_string()]);
    let said = tempfile::NamedTempFile::new()?;
    command.stdin(Stdio::null()).stdout(said.reopen()?).stderr(said.reopen()?);
    let child = std::os::unix::process::CommandExt::process_group(&mut command, 0).spawn()?;
    let has_ended = ended(&child, Duration::from_secs(args.limit));
    let status = child::end(child, Duration::from_secs(5));
    if !has_ended {
        return Ok(Outcome::Hung);
    }
    let text = String::from_utf8_lossy(&std::fs::read(said.path())?).into_owned();
    let verdict = text.lines().find_map(|line| line.strip_prefix(SAID));
    Ok(match (verdict, status.and_then(|status| status.code())) {
        (Some(verdict), Some(0)) => Outcome::Right(verdict.to_owned()),
        (Some(verdict), _) => Outcome::Wrong(verdict.to_owned()),
        (None, code) => Outcome::Failed(format!("status {code:?}: {}", text.trim())),
    })
}

fn ended(child: &Child, limit: Duration) -> bool {
    child::within(limit, || child::has_ended(child).then_some(())).is_some()
}

/// What such a process does.
fn check(args: &Args, case: &[String]) -> Result<bool> {
    let [problem, m, variant] = case else {
        return Err("--case takes a problem, a number of rows and a variant".into());
    };
    let (problem, variant): (Problem, Variant) = (problem.parse()?, variant.parse()?);
    let device = Device::open(args.device)?;
    let gpu = Gpu::new(&device, KernelCache::builder().build())?;
    let rows = rows(&problem, &[m.parse()?])?;
    let host = HostOperands::random(&problem, &rows, Spread::Every, 0x5EED);
    let reference = host.reference()?;
    let trial = Trial::new(gpu.stream(), &host, &reference)?;
    let checked = gpu.check(&trial, &Choice::pinned(&problem, &variant, device.arch())?)?;
    say!("{SAID}{checked}")?;
    Ok(checked.passed())
}
