//! Warming up: from a manifest to every kernel that it can need, and then not one compile.
//!
//! ```text
//! warpsmith warm-up
//! warpsmith warm-up serving.toml --arch h100
//! warpsmith warm-up --list
//! ```

mod args;

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use warpsmith::cache::{KernelCache, Seal, Share, Tier};
use warpsmith::engine::{Engine, Manifest, OnMiss, Progress, WarmUp, WarmUpReport};
use warpsmith::internal::engine::KernelSet;
use warpsmith::pick::Picker;
use warpsmith::spec::Problem;

use crate::shared::place::Place;
use crate::shared::{Result, bar, document, say};
pub use args::Args;

/// What the built-in manifest is.
const MOE: &str = include_str!("moe.toml");

/// Whether everything is there.
pub fn run(args: &Args) -> Result<bool> {
    let place = Place::find(args.arch, args.device)?;
    say!("{}", place.describe("nothing is loaded"))?;
    let manifest = match &args.manifest {
        Some(path) => Manifest::load(path)?,
        None => Manifest::parse(MOE)?,
    };
    let picker = place.picker();
    let set = list(&picker, &manifest, args.list)?;
    if args.list {
        document(&listed(&set))?;
        return match set.refused().len() {
            0 => Ok(true),
            refused => Err(format!("{refused} problems have no kernel").into()),
        };
    }

    let builder = KernelCache::builder().install_if_missing();
    let cache = match &args.cache {
        Some(dir) => builder.disk(dir).build(),
        None => builder.build(),
    };
    say!("NVRTC: {}\n", cache.toolchain()?)?;
    let progress = bar(set.len(), "kernels");
    let watch = |step: &Progress<'_>| {
        progress.set_position(step.done as u64);
        progress.set_message(step.kernel.to_owned());
        ControlFlow::Continue(())
    };
    let mut settings = WarmUp::new().share(Share::new(args.rank, args.of)?).progress(&watch);
    if let Some(threads) = args.threads {
        settings = settings.threads(threads);
    }
    if let Some(gib) = args.memory {
        settings = settings.memory(gib << 30);
    }
    let (report, compiles) = match &place {
        Place::Device(device) => {
            let engine = Engine::with_cache_and_picker(device, cache, picker);
            let report = engine.warm_up_with(&manifest, &settings);
            progress.finish_and_clear();
            show(&report)?;
            (report, sealed_calls_to_engine(&engine, &manifest, args.calls)?)
        }
        Place::Host(..) => {
            let report = settings.run(&cache, &picker, &manifest);
            progress.finish_and_clear();
            show(&report)?;
            (report, sealed_calls_to_cache(&cache, &picker, &manifest, args.calls)?)
        }
    };
    document(&report)?;
    if !report.is_complete() {
        return Err("a kernel is not there".into());
    }
    Ok(compiles == 0)
}

/// Says how many kernels each problem has, and how long it took to find out; with `all`, which.
fn list(picker: &Picker, manifest: &Manifest, all: bool) -> Result<KernelSet> {
    // Pickers that remember nothing.
    let fresh = || Picker::new(picker.device(), picker.arch());
    say!("{:>8} {:>9}  problem", "kernels", "ms")?;
    for (problem, rows) in manifest.problems() {
        let (picker, start) = (fresh(), Instant::now());
        let one = KernelSet::new(&picker, &Manifest::new().with(problem, rows));
        say!("{:>8} {:>9.2}  {problem}, M {rows}", one.specs().count(), ms(start.elapsed()))?;
        if all {
            one.specs().try_for_each(|spec| say!("{:>18}  {}", "", spec.variant()))?;
        }
        one.refused().iter().try_for_each(|(_, why)| say!("{:>18}  REFUSED: {why}", ""))?;
    }
    let set = KernelSet::new(&fresh(), manifest);
    let preparing: Vec<_> = set.preparations().map(|preparation| preparation.symbol()).collect();
    say!("{:>8} {:>9}  prepare weights: {}", preparing.len(), "", preparing.join(", "))?;
    say!("{:>8} {:>9}  in all\n", set.len(), "")?;
    Ok(set)
}

/// The kernels of a manifest, for machines.
fn listed(set: &KernelSet) -> serde_json::Value {
    json!({
        "kernels": set.specs().map(|spec| spec.name()).collect::<Vec<_>>(),
        "prepare": set.preparations().map(|preparation| preparation.symbol()).collect::<Vec<_>>(),
        "refused": set.refused().iter().map(|(problem, why)| json!({ "problem": problem.to_string(), "why": why.to_string() })).collect::<Vec<_>>(),
    })
}

fn show(report: &WarmUpReport) -> Result<()> {
    say!("{report}")?;
    let slowest = |tier| {
        let of_tier = report.warm.iter().filter(|warmed| warmed.tier == tier);
        of_tier.max_by(|a, b| a.fetch_ms.total_cmp(&b.fetch_ms))
    };
    for tier in [Tier::Compiled, Tier::Disk] {
        if let Some(slowest) = slowest(tier) {
            say!("slowest of tier {tier}: {:.1} ms, {}", slowest.fetch_ms, slowest.kernel)?;
        }
    }
    Ok(say!("")?)
}

/// Asks the cache for the kernels of random problems and M of the manifest; how many were compiled.
fn sealed_calls_to_cache(cache: &KernelCache, picker: &Picker, manifest: &Manifest, calls: u32) -> Result<u64> {
    cache.seal(Seal::Warn);
    let before = cache.stats().compiles;
    random(manifest, calls, |problem, m| {
        let choice = picker.choose(problem, m)?;
        Ok(cache.cubin(choice.spec()).map(drop)?)
    })?;
    Ok(cache.stats().compiles - before)
}

/// Asks the engine, which has them loaded; how many were not, or were compiled.
fn sealed_calls_to_engine(engine: &Engine, manifest: &Manifest, calls: u32) -> Result<u64> {
    engine.seal(Seal::Warn);
    let before = engine.stats();
    random(manifest, calls, |problem, m| Ok(engine.kernel_or(problem, m, OnMiss::Error).map(drop)?))?;
    let after = engine.stats();
    say!("\n{after}")?;
    Ok(after.cache.compiles - before.cache.compiles + after.loads - before.loads)
}

fn random(manifest: &Manifest, calls: u32, mut ask: impl FnMut(&Problem, u32) -> Result<()>) -> Result<()> {
    let problems: Vec<_> = manifest.problems().collect();
    let mut random = SmallRng::seed_from_u64(1);
    let asked: Vec<_> = (0..calls)
        .filter_map(|_| {
            let (problem, rows) = problems.get(random.random_range(0..problems.len().max(1)))?;
            let ranges: Vec<_> = rows.ranges().collect();
            let range = ranges.get(random.random_range(0..ranges.len()))?.clone();
            Some((*problem, random.random_range(range)))
        })
        .collect();
    let start = Instant::now();
    asked.iter().try_for_each(|(problem, m)| ask(problem, *m))?;
    let each = start.elapsed().as_nanos() as f64 / f64::from(calls.max(1));
    Ok(say!("{} sealed calls at random M: {each:.0} ns each", asked.len())?)
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
