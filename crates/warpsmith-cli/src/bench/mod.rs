//! The benchmark: for a list of problems, check and then time, against what the device can do in the same run.
//!
//! ```text
//! warpsmith bench --json ours.json
//! warpsmith bench --only grouped
//! warpsmith bench --route route.softmax:bf16:e128:k8:renormalised --tokens 1,256,8192
//! warpsmith bench --problem 'dual_gemm.silu:f16*nvfp4>f16:n4096:k7168:prepared' --m 1,16,256
//! warpsmith bench --problem 'dual_gemm.silu:e4m3*nvfp4>f16:n14336:k4096:prepared' --m 8192 --steady
//! ```
//!
//! Routers, combiners and quantisers are timed by themselves (`--route`, `--combine`, `--quantise`), beside what their bytes take; whole layers with
//! each of their steps (`--layer`).
//!
//! The floor of a problem is the larger of its bytes (weights of groups that have rows) at the best bandwidth (a large copy, a large read) and its
//! operations at the matrix rate (a large fp16 product). docs/measurements/ratios.py puts the JSON beside that of other
//! libraries.

mod args;
mod ceilings;
mod combine;
mod layer;
mod quantise;
mod route;
mod small;
mod source;
mod table;
#[cfg(test)]
mod tests;

use std::slice;
use std::time::Instant;

use warpsmith::build;
use warpsmith::cache::KernelCache;
use warpsmith::pick::{Choice, Picker};
use warpsmith::spec::Spec;
use warpsmith_tune::{HostOperands, Launching, Pace, Spread, Trial, reference};

use crate::shared::compile::{self, Made};
use crate::shared::gpu::Gpu;
use crate::shared::list::Item;
use crate::shared::place::Place;
use crate::shared::{Result, bar, document, say};
pub use args::Args;
use ceilings::Ceilings;
use table::{Measured, Outcome, Row};

/// A kernel to be: its choice and what came of building it, or why there is none.
type Candidate = std::result::Result<(Choice, Made), String>;

/// Whether everything is right.
pub fn run(args: &Args) -> Result<bool> {
    let start = Instant::now();
    let place = Place::find(args.arch, args.device)?;
    let machine = place.describe("nothing is launched");
    say!("{machine}")?;
    let arch = place.arch();
    let cache = KernelCache::builder().install_if_missing().build();
    if !args.layer.is_empty() {
        return layer::run(args, &place, cache);
    }
    if !args.route.is_empty() {
        return route::run(args, &place, cache);
    }
    if !args.combine.is_empty() {
        return combine::run(args, &place, cache);
    }
    if !args.quantise.is_empty() {
        return quantise::run(args, &place, cache);
    }
    // On sm_90 the list has its weights prepared, as the fastest kernels take them.
    let items = args.wanted.items(&[], crate::shared::prepares(&arch))?;
    say!("NVRTC: {}", cache.toolchain()?)?;

    let ceilings = ceilings::compile(cache.toolchain()?, &arch)?;
    let candidates = candidates(args, &place.picker(), &cache, &items);
    let (rows, ceilings) = match &place {
        Place::Device(device) => {
            let gpu = Gpu::new(device, cache)?;
            let ceilings = ceilings::measure(gpu.stream(), gpu.engine().device().arch(), &ceilings)?;
            say!("{ceilings}{}\n\n{}", args.load(), table::head())?;
            (on_device(&gpu, &items, candidates, ceilings, args.pace())?, Some(ceilings))
        }
        Place::Host(..) => {
            say!("\n{}", table::head())?;
            (on_host(&items, candidates)?, None)
        }
    };

    // In the form of docs/measurements/ratios.py.
    document(&table::json(&rows, &machine, args.steady, ceilings.as_ref()))?;
    say!("")?;
    table::dual_over_plain(&rows).iter().try_for_each(|line| say!("{line}"))?;
    let wrong = rows.iter().filter(|row| row.is_wrong()).count();
    let failed = rows.iter().filter(|row| row.has_failed()).count();
    let (good, all, seconds) = (rows.len() - wrong - failed, rows.len(), start.elapsed().as_secs_f64());
    match &place {
        Place::Device(_) => say!("right: {good} of {all}, every element within its bound; {seconds:.1} s in all")?,
        Place::Host(..) => say!("built: {good} of {all}; none launched, no GPU used; {seconds:.1} s in all")?,
    }
    match (wrong, failed) {
        (0, 0) => Ok(true),
        (0, failed) => Err(format!("{failed} of {all} kernels could not be built or launched").into()),
        _ => Ok(false),
    }
}

/// The kernels of every item, built on all cores: those that are pinned, or the one that is picked.
fn candidates(args: &Args, picker: &Picker, cache: &KernelCache, items: &[Item]) -> Vec<Vec<Candidate>> {
    let choices = |item: &Item| -> Vec<warpsmith::Result<Choice>> {
        match &args.variant[..] {
            [] => vec![picker.choose(&item.problem, item.m())],
            pinned => pinned.iter().map(|variant| Choice::pinned(&item.problem, variant, picker.arch())).collect(),
        }
    };
    let choices: Vec<_> = items.iter().map(choices).collect();
    let specs: Vec<Spec> = choices.iter().flatten().flatten().map(|choice| *choice.spec()).collect();
    let progress = bar(specs.len(), "kernels built");
    let mut made = compile::all(cache, &specs, &progress).into_iter();
    progress.finish_and_clear();
    let mut candidate = |choice: warpsmith::Result<Choice>| -> Candidate {
        let choice = choice.map_err(|error| error.to_string())?;
        let made = made.next().unwrap_or_else(|| Err("not built".to_owned()));
        Ok((choice, made))
    };
    choices.into_iter().map(|choices| choices.into_iter().map(&mut candidate).collect()).collect()
}

fn on_device(
    gpu: &Gpu,
    items: &[Item],
    candidates: Vec<Vec<Candidate>>,
    ceilings: Ceilings,
    pace: Pace,
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (item, candidates) in items.iter().zip(candidates) {
        if !candidates.iter().any(|candidate| matches!(candidate, Ok((_, Ok(_))))) {
            rows.extend(on_host(slice::from_ref(item), vec![candidates])?);
            continue;
        }
        let operands = HostOperands::random(&item.problem, &item.rows, Spread::Uniform, 0x5EED + u64::from(item.m()));
        let reference = reference::of(&operands)?;
        let mut trial = Trial::new(gpu.stream(), &operands, &reference).map_err(|error| error.to_string());
        for candidate in candidates {
            rows.push(shown(item, candidate, |choice, _| match &mut trial {
                Err(why) => Outcome::Failed(why.clone()),
                Ok(trial) => measure(gpu, trial, choice, ceilings, pace)
                    .unwrap_or_else(|error| Outcome::Failed(error.to_string())),
            })?);
        }
    }
    Ok(rows)
}

fn on_host(items: &[Item], candidates: Vec<Vec<Candidate>>) -> Result<Vec<Row>> {
    let compiled = |choice: &Choice, cubin: &build::Cubin| Outcome::Compiled {
        registers: cubin.resources_of(&choice.spec().symbol()).map(build::Resources::registers),
    };
    let pairs =
        items.iter().zip(candidates).flat_map(|(item, candidates)| candidates.into_iter().map(move |c| (item, c)));
    pairs.map(|(item, candidate)| shown(item, candidate, compiled)).collect()
}

/// A row, printed: what `outcome` says of a kernel that was built.
fn shown(item: &Item, candidate: Candidate, outcome: impl FnOnce(&Choice, &build::Cubin) -> Outcome) -> Result<Row> {
    let row = match candidate {
        Err(why) => Row::new(item, None, Outcome::Failed(why)),
        Ok((choice, Err(why))) => Row::new(item, Some(choice), Outcome::Failed(why)),
        Ok((choice, Ok(fetched))) => Row::new(item, Some(choice), outcome(&choice, fetched.cubin())),
    };
    say!("{}", row.line())?;
    Ok(row)
}

/// Checks a kernel and, if it is right, times it both ways.
fn measure(gpu: &Gpu, trial: &mut Trial<'_>, choice: &Choice, ceilings: Ceilings, pace: Pace) -> Result<Outcome> {
    let checked = gpu.check(trial, choice)?;
    if !checked.passed() {
        return Ok(Outcome::Wrong(checked.to_string()));
    }
    let plain = trial.time_at(&checked, Launching::Plain, pace)?;
    let dependent = trial.time_at(&checked, Launching::Dependent, pace)?;
    let worst = checked.verdict().worst();
    Ok(Outcome::Passed(Box::new(Measured { worst, plain, dependent, ceilings })))
}
