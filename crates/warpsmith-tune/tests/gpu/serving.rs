//! Serving on a device: after a warm-up nothing is compiled or loaded, a miss is served by a kernel that is right, and
//! captures survive both.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::CudaSlice;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use half::f16;
use warpsmith::cache::{KernelCache, Seal};
use warpsmith::engine::{Engine, Manifest, OnMiss, Selected};
use warpsmith::run::{Kernel, Matrix, MatrixMut, Operands};
use warpsmith::spec::{Arch, Problem};
use warpsmith_tune::{HostMatrix, HostOperands, Spread, Trial, reference, wait};

use crate::bench::{Bench, text};

const WAIT: Duration = Duration::from_secs(60);
/// Rows of the warm-up, and more of them.
const WARM: &str = "1..=16";
const MORE: u32 = 3000;

fn problem(arch: &Arch) -> Problem {
    let problem = Problem::gemm().n(256).k(512);
    if arch.capability() == Arch::H200.capability() { problem.prepared() } else { problem }
}

/// An engine that keeps nothing on disk, warmed up for few rows.
fn engine(bench: &Bench) -> Result<Engine, String> {
    let cache = KernelCache::builder().install_if_missing().no_disk().build();
    let engine = Engine::with_cache(&bench.device, cache).on_miss(OnMiss::Fallback);
    let manifest = Manifest::new().with(&problem(bench.arch()), &WARM.parse().map_err(text)?);
    let report = engine.warm_up(&manifest);
    if report.is_complete() { Ok(engine) } else { Err(report.to_string()) }
}

/// Asks until the right kernel serves; the last that stood in for it, if one did.
fn until_it_is_there(engine: &Engine, problem: &Problem, m: u32) -> Result<(Selected, Option<Selected>), String> {
    let (start, mut fallback) = (Instant::now(), None);
    while start.elapsed() < WAIT {
        match engine.kernel(problem, m).map_err(text)? {
            selected if selected.stands_in_for().is_none() => return Ok((selected, fallback)),
            selected => fallback = Some(selected),
        }
        thread::sleep(Duration::from_millis(1));
    }
    Err(format!("not there after {WAIT:?}: {}", engine.stats()))
}

/// Every M of the manifest, sealed: nothing is compiled, nothing is loaded.
pub fn nothing_is_made_after_a_warm_up(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    let engine = engine(bench)?;
    engine.seal(Seal::Refuse);
    let (problem, before) = (problem(bench.arch()), engine.stats());
    for round in 0..1000u32 {
        let m = 1 + round * 7 % 16;
        let selected = engine.kernel_or(&problem, m, OnMiss::Error).map_err(text)?;
        if selected.choice().spec() != engine.picker().choose(&problem, m).map_err(text)?.spec() {
            return Err(format!("{m} rows are served by {:?}", selected.choice()));
        }
    }
    let after = engine.stats();
    let made = (after.loads - before.loads, after.cache.compiles - before.cache.compiles);
    if made != (0, 0) {
        return Err(format!("{made:?} loads and compiles: {after}"));
    }
    match engine.kernel_or(&problem, MORE, OnMiss::Block) {
        Err(error) if error.is_sealed() => Ok(()),
        other => Err(format!("{other:?} behind a seal")),
    }
}

/// A miss is served by a kernel that is right, and then by its own, which is right.
pub fn a_stand_in_is_right(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    let (engine, problem) = (engine(bench)?, problem(bench.arch()));
    let (own, fallback) = until_it_is_there(&engine, &problem, MORE)?;
    let fallback = fallback.ok_or("nothing stood in: the test needs another kernel for more rows")?;
    let host = HostOperands::random(&problem, &[MORE], Spread::Every, 5);
    let reference = reference::of(&host).map_err(text)?;
    let trial = Trial::new(&bench.stream, &host, &reference).map_err(text)?;
    for kernel in [fallback.kernel(), own.kernel()] {
        let checked = trial.check(kernel).map_err(text)?;
        if !checked.passed() {
            return Err(format!("{kernel:?}: {checked}"));
        }
    }
    Ok(())
}

/// While a graph is captured in the mode "global": a call that would load is refused, one that need not is served, the
/// right kernel is loaded behind them, and the capture is not lost by any of it: its replay is right.
pub fn a_miss_does_not_spoil_a_capture(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    let (engine, problem, stream) = (engine(bench)?, problem(bench.arch()), &bench.stream);
    let mut host = HostOperands::random(&problem, &[MORE], Spread::Every, 5);
    host.alpha = vec![vec![0.01]];
    let HostMatrix::F16(a) = &host.a else { return Err("A is not f16".to_owned()) };
    let HostMatrix::Nvfp4 { codes, scales } = &host.b[0] else { return Err("B is not nvfp4".to_owned()) };
    let a = stream.clone_htod(a).map_err(text)?;
    let (codes, scales) = (stream.clone_htod(codes).map_err(text)?, stream.clone_htod(scales).map_err(text)?);
    let prepared = match problem.is_prepared() {
        true => Some(engine.prepare(stream, &problem, [(&codes, &scales)]).map_err(text)?),
        false => None,
    };
    let mut c = stream.alloc_zeros::<f16>(MORE as usize * 256).map_err(text)?;
    // Room for whichever kernel it will be.
    let mut workspace = stream.alloc_zeros::<u8>(1 << 26).map_err(text)?;
    wait(stream, WAIT).map_err(text)?;
    let launch = |kernel: &Kernel, c: &mut CudaSlice<f16>, workspace: &mut CudaSlice<u8>| {
        let (a, c) = (Matrix::f16(&a), MatrixMut::f16(c));
        let operands = match &prepared {
            Some(weights) => Operands::prepared(MORE, a, weights, c),
            None => Operands::gemm(MORE, a, Matrix::nvfp4(&codes, &scales), c),
        };
        kernel.launch(stream, operands.alpha(0.01).workspace(workspace)).map_err(text)
    };

    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL).map_err(text)?;
    let captured = || -> Result<Arc<Kernel>, String> {
        match engine.kernel_in(stream, &problem, MORE, OnMiss::Block) {
            Err(error) if error.is_not_loaded() && error.to_string().contains("captured") => {}
            other => return Err(format!("{other:?} while a graph is captured")),
        }
        let fallback = engine.kernel_in(stream, &problem, MORE, OnMiss::Fallback).map_err(text)?;
        if fallback.stands_in_for().is_none() {
            return Err("nothing stood in".to_owned());
        }
        // Compiled and loaded by another thread, while this one still captures.
        let _ = until_it_is_there(&engine, &problem, MORE)?;
        Ok(Arc::clone(fallback.kernel()))
    };
    let kernel = captured().and_then(|kernel| launch(&kernel, &mut c, &mut workspace).map(|()| kernel));
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags).map_err(text);
    // The graph holds it, too.
    drop(kernel?);
    let graph = graph?.ok_or("nothing was captured")?;
    drop(engine);
    for _ in 0..2 {
        graph.launch().map_err(text)?;
    }
    wait(stream, WAIT).map_err(text)?;
    let found = stream.clone_dtoh(&c).map_err(text)?;
    let reference = reference::of(&host).map_err(text)?;
    let expected = found.iter().zip(reference.elements());
    let wrong = expected.filter(|(found, expected)| !expected.accepts(found.to_f64(), reference.output())).count();
    if wrong == 0 { Ok(()) } else { Err(format!("{wrong} elements of the replay are wrong")) }
}

/// An engine that is dropped while a kernel is made behind it leaves a device that works.
pub fn an_engine_can_go_at_any_time(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    let problem = problem(bench.arch());
    for pause in [0, 1, 50, 400] {
        let engine = engine(bench)?;
        let _ = engine.kernel(&problem, MORE).map_err(text)?;
        thread::sleep(Duration::from_millis(pause));
        drop(engine);
    }
    let probe = bench.stream.clone_htod(&[1u8, 2, 3]).map_err(text)?;
    let back = bench.stream.clone_dtoh(&probe).map_err(text)?;
    if back == [1, 2, 3] { Ok(()) } else { Err(format!("{back:?} came back")) }
}
