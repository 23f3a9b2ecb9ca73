//! What an inference engine does with this crate, in miniature: prepare weights, warm up, seal, serve from many threads
//! with M changing at every step, replay captured graphs, and never wait for a compiler.
//!
//! ```text
//! warpsmith serve
//! warpsmith serve --threads 16 --seconds 10
//! ```

mod args;
mod latency;
mod model;
mod serving;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::CudaStream;
use serde_json::json;
use warpsmith::cache::{KernelCache, Seal};
use warpsmith::engine::{Engine, OnMiss, WarmUp};
use warpsmith::pick::Picker;
use warpsmith::run::{Device, Kernel};
use warpsmith::spec::{Arch, Problem};
use warpsmith_tune::{HostOperands, Spread, Trial, reference};

use crate::shared::place::Place;
use crate::shared::{Result, document, say};
pub use args::Args;
use latency::Latencies;
use model::{Layer, Mlp};
use serving::{PHASES, Served, serve};

/// An unexpected shape that is not there after this long will not come.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn run(args: &Args) -> Result<bool> {
    let place = Place::find(args.arch, args.device)?;
    say!("{}", place.describe("nothing is served"))?;
    let mlp = Mlp::new(args, &place.arch())?;
    let builder = KernelCache::builder().install_if_missing();
    let cache = if args.no_disk { builder.no_disk().build() } else { builder.build() };
    say!("NVRTC: {}\n", cache.toolchain()?)?;
    match &place {
        Place::Device(device) => on_device(args, device, cache, &mlp),
        Place::Host(arch, _) => on_host(arch, &cache, &mlp),
    }
}

/// What can be done without a device: every kernel is there when one comes.
fn on_host(arch: &Arch, cache: &KernelCache, mlp: &Mlp) -> Result<bool> {
    let report = WarmUp::new().run(cache, &Picker::new(&arch.to_string(), arch), &mlp.manifest()?);
    say!("{report}\n\nno GPU used: nothing was served")?;
    document(&report)?;
    if report.is_complete() { Ok(true) } else { Err("a kernel is not there".into()) }
}

fn on_device(args: &Args, device: &Device, cache: KernelCache, mlp: &Mlp) -> Result<bool> {
    // SAFETY: a buffer is used in the one stream of its thread, which has passed every use of it when it is released;
    // weights are read by all, after the stream that made them was waited for, and released after all others.
    // (Capturing graphs and tracking events do not go together.)
    unsafe { device.context().disable_event_tracking() };
    let stream = device.context().new_stream()?;
    let engine = Engine::with_cache(device, cache).on_miss(OnMiss::Fallback);

    let report = engine.warm_up(&mlp.manifest()?);
    say!("warm-up: {report}\n")?;
    engine.seal(Seal::Warn);
    let layers = [
        Layer::new(&engine, &stream, mlp.gate_up, mlp.tokens, 1)?,
        Layer::new(&engine, &stream, mlp.down, mlp.tokens, 2)?,
    ];
    stream.synchronize()?;
    let compiles = engine.stats().cache.compiles;

    let phase = AtomicU8::new(0);
    let is_over = |result: Result<bool>| {
        phase.store(PHASES.len() as u8, Relaxed);
        result
    };
    let (served, surprised) = thread::scope(|scope| {
        let serving = |thread: usize| {
            let (phase, layers) = (&phase, &layers);
            scope.spawn(move || serve(&device.context().new_stream()?, mlp, layers, phase, thread as u64))
        };
        let threads: Vec<_> = (0..args.threads).map(serving).collect();
        let surprised = is_over(phases(args, &engine, &stream, mlp, &phase));
        let served: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        (served, surprised)
    });
    let served =
        served.into_iter().map(|result| result.map_err(|_| "a thread panicked")?).collect::<Result<Vec<_>>>()?;
    let is_right = show(&served)?;
    let stats = engine.stats();
    say!("\n{stats}\n\nwhat was asked for, as a manifest:\n{}", engine.record().manifest())?;
    // The unexpected shapes took the only compiles.
    let behind = stats.cache.compiles - compiles;
    say!("compiled behind the seal: {behind}; the serving threads waited for none")?;
    let latencies =
        |of: fn(&Served) -> Latencies| served.iter().fold(Latencies::default(), |all, served| all.and(&of(served)));
    document(&json!({
        "threads": served.len(),
        "steps": served.iter().map(|of| of.steps).sum::<u64>(),
        "checked": served.iter().map(|of| of.checked).sum::<u64>(),
        "wrong": served.iter().map(|of| of.wrong).sum::<usize>(),
        "launches": latencies(|of| of.launches.iter().flatten().fold(Latencies::default(), Latencies::and)).json(),
        "replays": latencies(|of| of.graphs.clone()).json(),
        "compiled_behind": behind,
        "stats": stats,
    }))?;
    Ok(is_right & surprised? & report.is_complete() & (behind == stats.cache.sealed.compiles))
}

/// Lets the threads serve, then asks for what nobody expected, and lets them serve on. Whether that was served as it
/// should be.
fn phases(args: &Args, engine: &Engine, stream: &Arc<CudaStream>, mlp: &Mlp, phase: &AtomicU8) -> Result<bool> {
    let serve_on = || thread::sleep(args.seconds);
    let enter = |next: u8| phase.store(next, Relaxed);
    serve_on();
    // Of more shapes than there are, the first without columns is refused.
    let half = (mlp.down.columns() / 2).next_multiple_of(64);
    let narrower = |by: u32| mlp.down.n(half.saturating_sub(by.saturating_mul(64)));
    let mut shapes = vec![(mlp.gate_up, args.surprise)];
    shapes.extend((0..args.shapes.saturating_sub(1)).map(|by| (narrower(by), 64)));
    let mut is_right = true;
    for (problem, m) in shapes {
        is_right &= surprise(engine, stream, &problem, m, enter)?;
    }
    enter(4);
    serve_on();
    Ok(is_right)
}

/// Asks for a shape until its own kernel serves it, and checks whatever serves it. The kernel is compiled before it is asked
/// for, so that what compiling and loading do to those who serve is told apart.
fn surprise(engine: &Engine, stream: &Arc<CudaStream>, problem: &Problem, m: u32, enter: impl Fn(u8)) -> Result<bool> {
    say!("unexpected: {problem} for {m} rows")?;
    enter(1);
    let compiled = engine.cache().cubin(engine.picker().choose(problem, m)?.spec())?;
    say!("  compiled, or found, in {:.0} ms", compiled.elapsed().as_secs_f64() * 1e3)?;
    enter(2);
    let (start, mut calls, mut fallback, mut nothing) = (Instant::now(), Latencies::with_room(1 << 16), None, 0);
    let own = loop {
        let asked = Instant::now();
        let answer = engine.kernel(problem, m);
        calls.note(asked.elapsed());
        match answer {
            Ok(selected) if selected.stands_in_for().is_none() => break selected,
            Ok(selected) => fallback = Some(selected),
            Err(error) if error.is_not_loaded() => nothing += 1,
            Err(error) => return Err(error.into()),
        }
        if start.elapsed() > PATIENCE {
            return Err(format!("not there after {PATIENCE:?}:\n{}", engine.stats()).into());
        }
        thread::sleep(Duration::from_micros(500));
    };
    enter(3);
    say!("  its own kernel after {:.0} ms: {}", start.elapsed().as_secs_f64() * 1e3, own.choice().spec().variant())?;
    say!("  every call until then: {calls}; {nothing} found nothing loaded")?;
    let mut kernels: Vec<&Arc<Kernel>> = vec![own.kernel()];
    if let Some(fallback) = &fallback {
        say!("  served meanwhile by {}", fallback.choice().spec().variant())?;
        kernels.push(fallback.kernel());
    }
    let host = HostOperands::random(problem, &[m], Spread::Uniform, 3);
    let reference = reference::of(&host)?;
    let trial = Trial::new(stream, &host, &reference)?;
    let mut is_right = true;
    for kernel in kernels {
        let checked = trial.check(kernel)?;
        say!("  {}: {checked}", kernel.spec().variant())?;
        is_right &= checked.passed();
    }
    Ok(is_right)
}

/// Whether every result that was looked at is right.
fn show(served: &[Served]) -> Result<bool> {
    let sum = |of: fn(&Served) -> u64| served.iter().map(of).sum::<u64>();
    let (steps, replays, checked) = (sum(|of| of.steps), sum(|of| of.replays), sum(|of| of.checked));
    say!("\n{} threads: {steps} steps of two launches, {replays} replays of graphs", served.len())?;
    say!("host time of a launch by a plan:")?;
    let those = |phases: std::ops::Range<usize>, kinds: &[usize]| {
        let each = served.iter().flat_map(|of| &of.launches[phases.clone()]);
        each.flat_map(|of| kinds.iter().map(|kind| &of[*kind])).fold(Latencies::default(), Latencies::and)
    };
    for (index, phase) in PHASES.iter().enumerate() {
        say!("  {}  {phase}", those(index..index + 1, &[0, 1]))?;
        say!("  {}    of these right after a synchronise", those(index..index + 1, &[0]))?;
    }
    say!("  {}  while they are compiled or loaded", those(1..3, &[0, 1]))?;
    let graphs = served.iter().fold(Latencies::default(), |all, of| all.and(&of.graphs));
    say!("host time of a replay:\n  {graphs}")?;
    let wrong: usize = served.iter().map(|of| of.wrong).sum();
    say!("steps checked against the oracle: {checked}, wrong elements: {wrong}")?;
    Ok(wrong == 0 && checked > 0)
}
