//! The main job: from a problem to a checked and timed result, end to end.
//!
//! ```text
//! warpsmith run
//! warpsmith run --problem 'gemm:f16*nvfp4>f16:n4096:k4096' --m 64 --variants all
//! warpsmith run --operands in.safetensors --out out.safetensors
//! ```

mod args;
mod case;
mod dump;
mod safetensors_io;
mod table;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::Instant;

use indicatif::ProgressBar;
use warpsmith::cache::{CacheStats, KernelCache};
use warpsmith::pick::Choice;
use warpsmith::spec::Spec;
use warpsmith_tune::{Checked, Timing, Trial, reference};

use crate::shared::compile::{self, Made};
use crate::shared::gpu::Gpu;
use crate::shared::place::Place;
use crate::shared::{Result, bar, document, say};
pub use args::Args;
use case::Case;
pub use safetensors_io::{reals, rounded as bytes_of};
use table::{Outcome, Row};

/// What there is without a device.
const INSTEAD: &str = "results come from the host reference";

/// Without a GPU the suite's host reference takes columns worth this many operations of each problem, so that the whole
/// of it stays within a minute on two cores.
const SUITE_FLOP: f64 = 6e9;

/// Whether everything is right.
pub fn run(args: &Args) -> Result<bool> {
    let start = Instant::now();
    crate::shared::files::apart(&[("--operands", args.operands.as_deref())], &[("--out", args.out.as_deref())])?;
    let place = Place::find(args.arch, args.device)?;
    say!("{}", place.describe(INSTEAD))?;
    let cases = case::cases(args, &place.picker())?;
    let cache = KernelCache::builder().install_if_missing().build();
    say!("NVRTC: {}", cache.toolchain()?)?;

    let specs: Vec<Spec> = cases.iter().flat_map(|case| &case.choices).map(|choice| *choice.spec()).collect();
    let progress = bar(specs.len(), "kernels built");
    let made = compile::all(&cache, &specs, &progress);
    progress.finish_and_clear();
    if let Some(to) = &args.dump {
        dump::dump(&cache, &specs, &made, to)?;
    }

    let mut out = Out { path: args.out.as_deref(), is_written: false };
    let (rows, stats) = match &place {
        Place::Device(device) => {
            let gpu = Gpu::new(device, cache)?;
            (on_device(args, &gpu, &cases, &made, &mut out)?, gpu.engine().cache().stats())
        }
        Place::Host(..) => (on_host(args, &cases, &made, &mut out)?, cache.stats()),
    };
    report(args, &place, &rows, &stats)?;
    say!("{:.1} s in all", start.elapsed().as_secs_f64())?;
    match (count(&rows, Row::is_wrong), count(&rows, Row::has_failed)) {
        (0, 0) => out.expect_written().map(|()| true),
        (0, failed) => Err(format!("{failed} of {} kernels could not be built or launched", rows.len()).into()),
        _ => Ok(false),
    }
}

fn count(rows: &[Row], of: impl Fn(&Row) -> bool) -> usize {
    rows.iter().filter(|row| of(row)).count()
}

/// Where the result of `--operands` goes: the first that there is.
struct Out<'a> {
    path: Option<&'a Path>,
    is_written: bool,
}

impl Out<'_> {
    fn write(&mut self, case: &Case, c: &[u8]) -> Result<()> {
        let Some(path) = self.path.filter(|_| !self.is_written) else { return Ok(()) };
        safetensors_io::write(path, &case.problem, case.m as usize, c)?;
        self.is_written = true;
        Ok(())
    }

    fn expect_written(&self) -> Result<()> {
        match self.path.filter(|_| !self.is_written) {
            Some(path) => Err(format!("--out {} is not written: no result was computed", path.display()).into()),
            None => Ok(()),
        }
    }
}

/// Every case with its part of what was built.
fn with_made<'a>(cases: &'a [Case], made: &'a [Made]) -> impl Iterator<Item = (&'a Case, &'a [Made])> {
    let mut rest = made;
    cases.iter().map(move |case| {
        let (part, left) = rest.split_at(case.choices.len());
        rest = left;
        (case, part)
    })
}

fn on_device(args: &Args, gpu: &Gpu, cases: &[Case], made: &[Made], out: &mut Out<'_>) -> Result<Vec<Row>> {
    let progress = bar(made.len(), "kernels checked and timed");
    let mut rows = Vec::new();
    for (case, made) in with_made(cases, made) {
        note(&progress, case);
        let operands = case.operands();
        let reference = reference::of(&operands)?;
        let mut trial = Trial::new(gpu.stream(), &operands, &reference)?;
        for (choice, made) in case.choices.iter().zip(made) {
            let outcome = match made {
                Err(error) => Outcome::Failed(error.clone()),
                Ok(_) => match measure(gpu, &mut trial, choice, args) {
                    Err(error) => Outcome::Failed(error.to_string()),
                    Ok((checked, timing)) if checked.passed() => {
                        out.write(case, &checked.c())?;
                        Outcome::Passed { worst: checked.verdict().worst(), timing }
                    }
                    Ok((checked, _)) => Outcome::Wrong(checked.to_string()),
                },
            };
            rows.push(Row::new(*choice, &case.rows(), made.clone().ok(), outcome));
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    Ok(rows)
}

/// Checks and, if it is right and that is asked for, times a kernel.
fn measure(gpu: &Gpu, trial: &mut Trial<'_>, choice: &Choice, args: &Args) -> Result<(Checked, Option<Timing>)> {
    let checked = gpu.check(trial, choice)?;
    let timing = match checked.passed() && !args.untimed {
        true if args.dependent => Some(trial.time_dependent(&checked)?),
        true => Some(trial.time(&checked)?),
        false => None,
    };
    Ok((checked, timing))
}

/// The same job without a device: one result a case, from the host reference.
fn on_host(args: &Args, cases: &[Case], made: &[Made], out: &mut Out<'_>) -> Result<Vec<Row>> {
    let progress = bar(cases.len(), "results computed on the host");
    // Somebody who asks for one problem wants all of its result; the suite is a tour.
    let flop = if cases.len() == 1 { f64::INFINITY } else { SUITE_FLOP };
    let mut rows = Vec::new();
    for (case, made) in with_made(cases, made) {
        note(&progress, case);
        // A ladder compares variants; the one result that all of them have adds nothing to it. Nor does the result of a
        // kernel that there is not.
        let host = match args.is_ladder() || !made.iter().any(Made::is_ok) {
            true => None,
            false => {
                let operands = case.operands();
                let columns = reference::columns_within(&operands, flop);
                let reference = reference::in_columns(&operands, &columns)?;
                out.write(case, &safetensors_io::rounded(&reference))?;
                let largest = reference.elements().iter().map(|element| element.value.abs()).fold(0.0, f64::max);
                Some((columns.len(), largest))
            }
        };
        for (choice, made) in case.choices.iter().zip(made) {
            let outcome = match (made, host) {
                (Err(error), _) => Outcome::Failed(error.clone()),
                (Ok(_), Some((columns, largest))) => Outcome::Host { columns, largest },
                (Ok(_), None) => Outcome::Compiled,
            };
            rows.push(Row::new(*choice, &case.rows(), made.clone().ok(), outcome));
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(rows)
}

fn report(args: &Args, place: &Place, rows: &[Row], stats: &CacheStats) -> Result<()> {
    document(&table::json(rows, &place.describe(INSTEAD)))?;
    say!("\n{}", if args.is_ladder() { table::ladder(rows) } else { table::table(rows) })?;
    if args.is_ladder() {
        rows.iter().filter_map(Row::trouble).take(10).try_for_each(|why| say!("{why}"))?;
    }
    let all = rows.len();
    match (count(rows, Row::is_wrong), count(rows, Row::has_failed), place) {
        (0, 0, Place::Device(_)) => say!("right: {all} of {all}, every element within its bound")?,
        (0, 0, Place::Host(..)) => say!("built: {all} of {all}; none launched, no GPU used")?,
        (0, failed, _) => say!("FAILED: {failed} of {all}")?,
        (wrong, 0, _) => say!("WRONG: {wrong} of {all}")?,
        (wrong, failed, _) => say!("WRONG: {wrong} of {all}; FAILED: {failed}")?,
    }
    say!(
        "kernels: compiled {} ({:.1} s), from disk {}, from memory {}",
        stats.compiles,
        stats.compile_ms / 1e3,
        stats.disk_hits,
        stats.memory_hits
    )?;
    Ok(())
}

fn note(progress: &ProgressBar, case: &Case) {
    let why = case.why.as_ref().map_or(String::new(), |why| format!(" ({why})"));
    progress.set_message(format!("{} M={}{why}", case.problem, case.m));
}
