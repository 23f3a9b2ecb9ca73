//! Rendered CUDA and what the compiler makes of it; no GPU needed.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod blackwell;
mod every;
mod hopper;
mod picks;
mod same;

use std::sync::{Mutex, MutexGuard, PoisonError};

use warpsmith::build::{Cubin, Toolchain};
use warpsmith::format::Format;
use warpsmith::internal::spec::space;
use warpsmith::pick;
use warpsmith::spec::{Activation, Arch, Problem, Spec};
use warpsmith_testing as common;
use warpsmith_tune::suite::Suite;

/// One test compiles at a time, so that compile times are those of a compiler that is not disturbed by others.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The problems of the suite, with the M's they are asked for.
fn suite() -> Vec<(Problem, Vec<u32>)> {
    Suite::built_in().unwrap().problems()
}

/// The same for prepared weights.
fn prepared_suite() -> Vec<(Problem, Vec<u32>)> {
    suite().into_iter().map(|(problem, ms)| (problem.prepared(), ms)).collect()
}

/// What is chosen for all of them, each once.
fn default_picks(suite: Vec<(Problem, Vec<u32>)>, archs: &[Arch]) -> Vec<Spec> {
    let mut specs = Vec::new();
    for arch in archs {
        for (problem, ms) in &suite {
            for m in ms {
                let spec = *pick::choose(problem, *m, arch).unwrap().spec();
                if !specs.contains(&spec) {
                    specs.push(spec);
                }
            }
        }
    }
    specs
}

/// What makes a kernel slow without being wrong: registers spilled, or asynchronous products that wait for each other.
fn slow(cubin: &Cubin) -> Option<String> {
    let spilled = cubin.resources().iter().find(|entry| entry.has_spills() || entry.local_bytes() > 0);
    let serialised = cubin.log().lines().find(|line| line.contains("serialized"));
    spilled.map(ToString::to_string).or(serialised.map(str::to_owned))
}

fn warning(cubin: &Cubin) -> Option<String> {
    cubin.log().lines().find(|line| line.contains("warning")).map(str::to_owned)
}

/// Compiles every spec on all cores; returns what went wrong.
fn compile_all(
    toolchain: &Toolchain,
    specs: &[Spec],
    check: impl Fn(&Spec, &Cubin) -> Option<String> + Sync,
) -> Vec<String> {
    let wrong = common::on_all_cores(specs, |spec| {
        let built = warpsmith::internal::build::render(spec)
            .and_then(|source| warpsmith::internal::build::compile(toolchain, &source, spec.arch().target()));
        match built {
            Ok(cubin) => check(spec, &cubin),
            Err(error) => Some(format!("{spec}: {error:?}")),
        }
    });
    wrong.into_iter().flatten().collect()
}

/// Nothing is found in any of these, which are `what`.
fn assert_compiled(toolchain: &Toolchain, specs: &[Spec], what: &str, find: impl Fn(&Cubin) -> Option<String> + Sync) {
    let wrong = compile_all(toolchain, specs, |spec, cubin| find(cubin).map(|why| format!("{spec}: {why}")));
    eprintln!("{} {what} compiled by {}", specs.len(), toolchain.identity());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), specs.len(), wrong.join("\n"));
}

fn slow_or_warning(cubin: &Cubin) -> Option<String> {
    slow(cubin).or(warning(cubin))
}

/// Each operation with each of its activations.
fn every_operation() -> Vec<Problem> {
    let single = Activation::UNGATED.iter().map(|act| Problem::gemm().activation(*act));
    single.chain(Activation::GATED.iter().map(|act| Problem::dual_gemm(*act))).collect()
}

/// The same with rows that are taken, or put, by their numbers, in turn.
fn moved(problem: Problem, turn: usize) -> Problem {
    let is_taken = problem.a_format() != Format::Nvfp4 || !problem.is_prepared();
    let problem = if is_taken && turn % 3 != 1 { problem.gathered() } else { problem };
    if turn % 5 < 2 { problem.slots() } else { problem }
}

/// The same in groups, and with factors of rows and a bias, in turn.
fn varied(problem: Problem, turn: usize, bias: Format) -> Problem {
    let problem = moved(problem, turn);
    let problem = if turn % 3 < 2 { problem.grouped(40) } else { problem };
    if turn % 4 < 2 { problem } else { problem.row_scale().bias(bias) }
}

/// Every `step`th of the space, so that a few land in each part of it.
fn sampled(problem: &Problem, arch: &Arch, count: usize, seed: usize) -> Vec<Spec> {
    let all: Vec<_> = space(problem, arch).collect();
    let step = (all.len() / count).max(1);
    all.into_iter().skip(seed % step).step_by(step).collect()
}
