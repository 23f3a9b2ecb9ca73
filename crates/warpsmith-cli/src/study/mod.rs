//! The debate that this project began with, as experiments: pipeline stages were to be worth 1.5 to 1.8×, tile sizes 1.8
//! to 2.5×, TMA stores 1.12 to 1.15×, warp specialisation 1.25 to 1.4×; and which of four fusions is best was open.
//!
//! ```text
//! warpsmith study --html study.html
//! ```
//!
//! Each is measured three times over, since what a change is worth depends on what is around it. *Alone*, on the debate's
//! baseline (two passes, one stage, a 128×128 tile): what the promises spoke of. *Stacked*, each on top of those before
//! that made it faster: what would have come of doing it. *In the pick*, the kernel that is picked over the same kernel
//! without it: what it is worth once everything else is in place, which is the one that tells whether to have it at all.
//!
//! Axes depend on each other, so the legal kernels nearest to what is asked for are compared (nearest.rs), and every
//! number comes with both of their names. Nothing is timed before it has passed the gate. What is compared is timed in
//! turn, with operands that are not in the L2 cache; a speed-up is the median of the ratios of one turn each.

mod args;
mod built;
mod cases;
mod chart;
mod debate;
mod document;
mod experiment;
mod lab;
mod nearest;
mod proposals;
mod report;
mod show;
#[cfg(test)]
mod tests;
mod verdict;

use std::time::Instant;

use warpsmith::cache::KernelCache;
use warpsmith::internal::file;
use warpsmith::spec::Spec;
use warpsmith_tune::oracle::Reference;
use warpsmith_tune::{HostOperands, Launching, reference};

use crate::shared::gpu::Gpu;
use crate::shared::place::Place;
use crate::shared::{Result, bar, say};
pub use args::Args;
use cases::Case;
use debate::Debate;
use lab::Lab;
use report::{CaseLine, Cell, Report};

/// Whether everything is right.
pub fn run(args: &Args) -> Result<bool> {
    let start = Instant::now();
    crate::shared::files::apart(&[], &[("--html", args.html.as_deref())])?;
    let place = Place::find(args.arch, args.device)?;
    let machine = place.describe("nothing is launched, so nothing is stacked");
    let arch = place.arch();
    let cases = match &args.problem[..] {
        [] => cases::cases(args.tokens, crate::shared::prepares(&arch) && !args.unprepared)?,
        own => cases::own(own, |problem| crate::shared::rows(problem, &args.m))?,
    };
    let cache = KernelCache::builder().install_if_missing().build();
    say!("{machine}\nNVRTC: {}", cache.toolchain()?)?;

    let picker = place.picker();
    let mut debate = Debate::new(&picker, &cases)?;
    debate.build_ahead(&cache);
    let line = |case: &Case| CaseLine {
        kind: case.kind.clone(),
        label: case.label.clone(),
        problem: case.problem.to_string(),
        rows: case.rows.clone(),
    };
    let mut report = Report {
        machine,
        measured: matches!(place, Place::Device(_)),
        dependent: args.dependent,
        turns: args.turns,
        cases: cases.iter().map(line).collect(),
        grounds: Vec::new(),
    };
    say!("\nproblems")?;
    show::cases(&report).iter().try_for_each(|line| say!("{line}"))?;
    say!("{}\n", show::rules())?;
    report.grounds = match &place {
        Place::Device(device) => {
            let gpu = Gpu::new(device, cache)?;
            let truths = truths(&cases)?;
            let mut lab = Lab::new(&gpu, &cases, &truths, args.turns, Launching::of(args.dependent))?;
            debate.run(gpu.engine().cache(), Some(&mut |case, specs: &[Spec]| lab.measure(case, specs)))?
        }
        Place::Host(..) => debate.run(&cache, None)?,
    };

    if let Some(path) = &args.html {
        file::write(path, document::page(&report)?.html()?)?;
    }
    crate::shared::document(&report)?;
    say!("what the best value of each is worth, in geometric mean over all problems")?;
    show::overview(&report).iter().try_for_each(|line| say!("{line}"))?;
    let cells = || report.grounds.iter().flat_map(|ground| &ground.proposals).flat_map(|of| &of.values);
    let cells: Vec<&Cell> = cells().flat_map(|value| &value.cells).collect();
    let count = |of: fn(&Cell) -> bool| cells.iter().filter(|cell| of(cell)).count();
    let failed = count(|cell| matches!(cell, Cell::Failed { .. }));
    let wrong = count(|cell| matches!(cell, Cell::Wrong { .. }));
    let refused = count(|cell| matches!(cell, Cell::Refused { .. }));
    let (all, seconds) = (cells.len(), start.elapsed().as_secs_f64());
    let done = if report.measured { "compared" } else { "built" };
    say!(
        "\n{} {done}, {refused} not legal, {failed} failed, {wrong} wrong, of {all}; {seconds:.1} s in all",
        all - failed - wrong - refused
    )?;
    match (wrong, failed) {
        (0, 0) => Ok(true),
        (0, failed) => Err(format!("{failed} of {all} kernels could not be built or launched").into()),
        _ => Ok(false),
    }
}

/// Operands, and what the result should be.
fn truths(cases: &[Case]) -> Result<Vec<(HostOperands, Reference)>> {
    let progress = bar(cases.len(), "references computed");
    let truth = |case: &Case| {
        let operands = case.operands();
        let reference = reference::of(&operands)?;
        progress.inc(1);
        Ok((operands, reference))
    };
    let truths = cases.iter().map(truth).collect();
    progress.finish_and_clear();
    truths
}
