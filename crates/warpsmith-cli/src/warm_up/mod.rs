//! Warming up: from a manifest to every kernel that it can need, and then not one compile.
//!
//! ```text
//! warpsmith warm-up
//! warpsmith warm-up serving.toml --arch h100
//! warpsmith warm-up --list
//! warpsmith warm-up serving.toml --tune 180 --table h100.tuning --pack h100.pack
//! warpsmith warm-up --pack h100.pack
//! ```
//!
//! With `--tune`, kernels are checked and timed in a worker process, as `warpsmith tune` does; only then this process opens
//! the device.

mod args;

use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use serde_json::json;
use warpsmith::cache::{KernelCache, Pack, Seal, Share, Tier};
use warpsmith::engine::{Engine, Manifest, OnMiss, Progress, WarmUp, WarmUpReport};
use warpsmith::internal::build::Simt;
use warpsmith::internal::engine::{KernelSet, simts_of};
use warpsmith::pick::{Picker, Table};
use warpsmith::spec::Problem;
use warpsmith_tune::SystemClock;

use crate::shared::place::Place;
use crate::shared::{Result, bar, complain, document, files, say};
use crate::tune::tuning::Tuning;
use crate::tune::whole::{Session, Whole};
use crate::{pack, tune};
pub use args::Args;

/// What the built-in manifest is.
const MOE: &str = include_str!("moe.toml");

/// What a warm-up begins with.
struct Given {
    manifest: Manifest,
    table: Table,
    /// What kernels are taken from.
    pack: Option<Pack>,
}

impl Given {
    fn read(args: &Args) -> Result<Self> {
        let (manifest, table) = (args.manifest.as_deref(), args.table.as_deref());
        let tunes = args.tune.is_some();
        if tunes {
            files::apart(&[("the manifest", manifest)], &[("--table", table), ("--pack", args.pack.as_deref())])?;
        }
        let pack = args.pack.as_ref().filter(|_| !tunes).map(Pack::open).transpose()?;
        let (mut packed, mut tuning) = (None, None);
        if let Some(pack) = &pack {
            (packed, tuning) = (pack.manifest()?, pack.tuning()?);
        }
        let manifest = match manifest {
            Some(path) => Manifest::load(path)?,
            None => Manifest::parse(packed.as_deref().unwrap_or(MOE))?,
        };
        let table = match table {
            Some(path) if !tunes => Table::load(path)?.0,
            Some(path) => tune::table(Some(path))?,
            None => Table::parse(tuning.as_deref().unwrap_or_default()).0,
        };
        Ok(Self { manifest, table, pack })
    }

    /// Where kernels come from and go to.
    fn cache(&mut self, args: &Args) -> KernelCache {
        let builder = match self.pack.take() {
            Some(pack) => KernelCache::builder().pack(pack),
            None => KernelCache::builder().install_if_missing(),
        };
        match &args.cache {
            Some(dir) => builder.disk(dir).build(),
            None => builder.build(),
        }
    }
}

/// Whether everything is there, and nothing is wrong.
pub fn run(args: &Args) -> Result<bool> {
    let mut given = Given::read(args)?;
    let tuned = match args.tune {
        Some(within) => {
            let cache = given.cache(args);
            let whole = tuned(args, within, &cache, &given)?;
            given.table = whole.table.clone();
            Some((cache, whole))
        }
        None => None,
    };
    let place = Place::find(args.arch, args.device)?;
    say!("{}", place.describe("nothing is loaded"))?;
    let set = list(&place, &given, args.list)?;
    if args.list {
        document(&listed(&set))?;
        return match set.refused().len() {
            0 => Ok(true),
            refused => Err(format!("{refused} problems have no kernel").into()),
        };
    }
    let (cache, whole) = match tuned {
        Some((cache, whole)) => (cache, Some(whole)),
        None => (given.cache(args), None),
    };
    match cache.toolchain() {
        Ok(toolchain) => say!("NVRTC: {toolchain}\n")?,
        // Needed only for what is not in the pack.
        Err(error) if args.pack.is_some() => say!("no NVRTC: {error}\n")?,
        Err(error) => return Err(error.into()),
    }
    let packed = whole.as_ref().filter(|whole| whole.wrong.is_empty()).and(args.pack.as_deref());
    let pack = packed.map(|path| written(path, &cache, &set, &place, &given)).transpose()?;
    let (report, compiles) = warm(args, &place, cache, set.len(), &given)?;
    let is_wrong = whole.as_ref().is_some_and(|whole| !whole.wrong.is_empty());
    if is_wrong && args.pack.is_some() {
        complain!("a kernel that would serve is wrong: no pack is written");
    }
    document(&Told { report: &report, tuning: whole.as_ref(), table: args.table.as_deref(), pack })?;
    if !report.is_complete() {
        return Err("a kernel is not there".into());
    }
    Ok(compiles == 0 && !is_wrong)
}

/// What came of it, for machines.
#[derive(Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    report: &'a WarmUpReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    tuning: Option<&'a Whole>,
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<&'a Path>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pack: Option<serde_json::Value>,
}

/// Measures what the manifest names, with all that comes before and after within the time.
fn tuned(args: &Args, within: Duration, cache: &KernelCache, given: &Given) -> Result<Whole> {
    let clock = SystemClock::new();
    let mut tuning = Tuning::new(cache, args.device, args.dependent, args.duty)?;
    let means = tuning.means().map_err(|error| {
        format!(
            "{error}; --tune needs a GPU and NVRTC: run it where there are both, and take its --table and --pack to where \
             they serve"
        )
    })?;
    say!("{}, NVRTC {}", means.machine(), means.nvrtc)?;
    let (manifest, table) = (&given.manifest, &given.table);
    let session = Session { manifest, table, means: &means, clock: &clock, until: within };
    let whole = tune::all(&session, &mut tuning, args.table.as_deref())?;
    whole.show()?;
    Ok(whole)
}

/// Writes the pack that the manifest is served from.
fn written(
    path: &Path,
    cache: &KernelCache,
    set: &KernelSet,
    place: &Place,
    given: &Given,
) -> Result<serde_json::Value> {
    let specs: Vec<_> = set.specs().copied().collect();
    let simts: Vec<_> = set.simts().map(|simt| (simt, place.arch())).collect();
    let pack = pack::collect(cache, &specs, &simts)?;
    pack.tuning(given.table.to_string()).manifest(given.manifest.to_string()).write(path)?;
    let pack = Pack::open(path)?;
    say!("{pack}\n")?;
    Ok(json!({ "file": path, "kernels": pack.kernels().len() }))
}

/// Makes and loads every kernel, and then asks for some; with how many of these were not there.
fn warm(args: &Args, place: &Place, cache: KernelCache, kernels: usize, given: &Given) -> Result<(WarmUpReport, u64)> {
    let (manifest, picker) = (&given.manifest, place.picker_with(&given.table)?);
    let progress = bar(kernels, "kernels");
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
        settings = settings.memory(gib.saturating_mul(1 << 30));
    }
    Ok(match place {
        Place::Device(device) => {
            let engine = Engine::with_cache_and_picker(device, cache, picker);
            let report = engine.warm_up_with(manifest, &settings);
            progress.finish_and_clear();
            show(&report)?;
            (report, sealed_calls_to_engine(&engine, manifest, args.calls)?)
        }
        Place::Host(..) => {
            let report = settings.run(&cache, &picker, manifest);
            progress.finish_and_clear();
            show(&report)?;
            (report, sealed_calls_to_cache(&cache, &picker, manifest, args.calls)?)
        }
    })
}

/// Says how many kernels each problem has, and how long it took to find out; with `all`, which.
fn list(place: &Place, given: &Given, all: bool) -> Result<KernelSet> {
    let manifest = &given.manifest;
    // Pickers that remember nothing.
    let fresh = || place.picker_with(&given.table);
    say!("{:>8} {:>9}  problem", "kernels", "ms")?;
    for (problem, rows) in manifest.problems() {
        let (picker, start) = (fresh()?, Instant::now());
        let one = KernelSet::new(&picker, &Manifest::new().with(problem, rows));
        say!("{:>8} {:>9.2}  {problem}, M {rows}", one.specs().count(), ms(start.elapsed()))?;
        if all {
            one.specs().try_for_each(|spec| say!("{:>18}  {}", "", spec.variant()))?;
        }
        one.refused().iter().try_for_each(|(_, why)| say!("{:>18}  REFUSED: {why}", ""))?;
    }
    let set = KernelSet::new(&fresh()?, manifest);
    let (preparing, beside): (Vec<_>, Vec<_>) = set.simts().partition(|simt| matches!(simt, Simt::Prepare(_)));
    for (what, simts) in [("prepare weights", preparing), ("routers and combiners", beside)] {
        let symbols: Vec<_> = simts.iter().map(Simt::symbol).collect();
        if !symbols.is_empty() {
            say!("{:>8} {:>9}  {what}: {}", symbols.len(), "", symbols.join(", "))?;
        }
    }
    say!("{:>8} {:>9}  in all\n", set.len(), "")?;
    Ok(set)
}

/// The kernels of a manifest, for machines.
fn listed(set: &KernelSet) -> serde_json::Value {
    json!({
        "kernels": set.specs().map(|spec| spec.name()).collect::<Vec<_>>(),
        "without_matrix_instructions": set.simts().map(|simt| simt.symbol()).collect::<Vec<_>>(),
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

/// Asks the cache for the kernels of random problems and M of the manifest, and for its routers, combiners and quantisers; how
/// many were compiled.
fn sealed_calls_to_cache(cache: &KernelCache, picker: &Picker, manifest: &Manifest, calls: u32) -> Result<u64> {
    cache.seal(Seal::Warn);
    let before = cache.stats().compiles;
    for simt in simts_of(manifest) {
        let _ = cache.simt_cubin(simt, picker.arch())?;
    }
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
    manifest.routes().try_for_each(|route| engine.route(route).map(drop))?;
    manifest.combines().try_for_each(|combine| engine.combine(combine).map(drop))?;
    manifest.quantisers().try_for_each(|quantise| engine.quantise(quantise).map(drop))?;
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
