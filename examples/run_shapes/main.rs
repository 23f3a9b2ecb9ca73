//! The main job: from a problem to a checked and timed result, end to end.
//!
//! ```text
//! cargo run --release --example run_shapes
//! cargo run --release --example run_shapes -- --problem 'gemm:f16*nvfp4>f16:n4096:k4096' --m 64 --variants all
//! cargo run --release --example run_shapes -- --operands in.safetensors --out out.safetensors
//! ```
//!
//! Exit status: 0 if everything is right, 1 if a kernel is wrong, 2 if something could not be done at all, 3 if a
//! kernel hung or broke the device's context.

#![allow(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod case;
mod dump;
mod safetensors_io;
#[path = "../shared/mod.rs"]
mod shared;
mod suite;
mod table;

use std::fs;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use indicatif::ProgressBar;
use warpsmith::cache::{Forge, ForgeStats};
use warpsmith::pick::Choice;
use warpsmith::run::Timing;
use warpsmith::spec::Spec;
use warpsmith::tune::{Checked, Trial, reference};

use args::Args;
use case::Case;
use shared::compile::{self, Made};
use shared::gpu::Gpu;
use shared::place::Place;
use shared::{Result, bar};
use table::{Outcome, Row};

/// What there is without a device.
const INSTEAD: &str = "results come from the host reference";

/// Without a GPU the suite's host reference takes columns worth this many operations of each problem, so that the whole
/// of it stays within a minute on two cores.
const SUITE_FLOP: f64 = 6e9;

fn main() -> ExitCode {
    shared::exit(|| run(&Args::parse()))
}

/// Whether everything is right.
fn run(args: &Args) -> Result<bool> {
    let start = Instant::now();
    let place = Place::find(args.arch, args.device)?;
    println!("{}", place.describe(INSTEAD));
    let cases = case::cases(args, &place.picker())?;
    let forge = Forge::builder().install_if_missing().build();
    println!("NVRTC: {}", forge.toolchain()?);

    let specs: Vec<Spec> = cases.iter().flat_map(|case| &case.choices).map(|choice| *choice.spec()).collect();
    let progress = bar(specs.len(), "kernels built");
    let made = compile::all(&forge, &specs, &progress);
    progress.finish_and_clear();
    if let Some(to) = &args.dump {
        dump::dump(&forge, &specs, &made, to)?;
    }

    let (rows, stats) = match &place {
        Place::Device(device) => {
            let gpu = Gpu::new(device, forge)?;
            (on_device(args, &gpu, &cases, &made)?, gpu.engine().forge().stats())
        }
        Place::Host(..) => (on_host(args, &cases, &made)?, forge.stats()),
    };
    report(args, &place, &rows, &stats)?;
    println!("{:.1} s in all", start.elapsed().as_secs_f64());
    Ok(rows.iter().all(|row| row.failed().is_none()))
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

fn on_device(args: &Args, gpu: &Gpu, cases: &[Case], made: &[Made]) -> Result<Vec<Row>> {
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
                Ok(_) => match measure(gpu, &mut trial, choice, args.dependent) {
                    Err(error) => Outcome::Failed(error.to_string()),
                    Ok((checked, Some(timing))) => {
                        write_out(args, case, checked.c())?;
                        Outcome::Passed { worst: checked.verdict().worst(), timing }
                    }
                    Ok((checked, None)) => Outcome::Failed(checked.to_string()),
                },
            };
            rows.push(Row::new(*choice, case.m, made.clone().ok(), outcome));
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    Ok(rows)
}

/// Checks and, if it is right, times a kernel.
fn measure(gpu: &Gpu, trial: &mut Trial<'_>, choice: &Choice, dependent: bool) -> Result<(Checked, Option<Timing>)> {
    let checked = gpu.check(trial, choice)?;
    let timing = match checked.passed() {
        true if dependent => Some(trial.time_dependent(&checked)?),
        true => Some(trial.time(&checked)?),
        false => None,
    };
    Ok((checked, timing))
}

/// The same job without a device: one result a case, from the host reference.
fn on_host(args: &Args, cases: &[Case], made: &[Made]) -> Result<Vec<Row>> {
    let progress = bar(cases.len(), "results computed on the host");
    // Somebody who asks for one problem wants all of its result; the suite is a tour.
    let flop = if cases.len() == 1 { f64::INFINITY } else { SUITE_FLOP };
    let mut rows = Vec::new();
    for (case, made) in with_made(cases, made) {
        note(&progress, case);
        // A ladder compares variants; the one result that all of them have adds nothing to it.
        let host = match args.is_ladder() {
            true => None,
            false => {
                let operands = case.operands();
                let columns = reference::columns_within(&operands, flop);
                let reference = reference::in_columns(&operands, &columns)?;
                write_out(args, case, &safetensors_io::rounded(&reference))?;
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
            rows.push(Row::new(*choice, case.m, made.clone().ok(), outcome));
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(rows)
}

fn write_out(args: &Args, case: &Case, c: &[u8]) -> Result<()> {
    let Some(path) = &args.out else { return Ok(()) };
    let (m, n) = (case.m as usize, case.problem.columns() as usize);
    safetensors_io::write(path, case.problem.c_format(), m, n, c)
}

fn report(args: &Args, place: &Place, rows: &[Row], stats: &ForgeStats) -> Result<()> {
    print!("\n{}", if args.is_ladder() { table::ladder(rows) } else { table::table(rows) });
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&table::json(rows, &place.describe(INSTEAD)))?;
        fs::write(path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let failed = rows.iter().filter_map(Row::failed);
    let wrong = failed.clone().count();
    println!();
    if args.is_ladder() {
        failed.take(10).for_each(|why| println!("{why}"));
    }
    match (wrong, place) {
        (0, Place::Device(_)) => println!("right: {} of {}, every element within its bound", rows.len(), rows.len()),
        (0, Place::Host(..)) => println!("built: {} of {}; none launched, no GPU used", rows.len(), rows.len()),
        _ => println!("WRONG: {wrong} of {}", rows.len()),
    }
    println!(
        "kernels: compiled {} ({:.1} s), from disk {}, from memory {}",
        stats.compiles,
        stats.compile_ms / 1e3,
        stats.disk_hits,
        stats.memory_hits
    );
    Ok(())
}

fn note(progress: &ProgressBar, case: &Case) {
    let why = case.why.map_or(String::new(), |why| format!(" ({why})"));
    progress.set_message(format!("{} M={}{why}", case.problem, case.m));
}
