//! An engine that serves, up to the driver: which here is one without a device.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use warpsmith_testing as common;
use warpsmith_testing::counting;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use warpsmith::Result;
use warpsmith::cache::{KernelCache, Seal, Tier};
use warpsmith::engine::{Engine, Manifest, OnMiss};
use warpsmith::internal::build::Source;
use warpsmith::internal::engine::doctor;
use warpsmith::run::{Device, Matrix};
use warpsmith::spec::{Problem, Spec};

use common::Renders;

use common::null::Null;

fn problem() -> Problem {
    Problem::gemm().n(4096).k(4096)
}

/// Small kernels under a spec's names.
fn render(spec: &Spec) -> Result<Source> {
    let symbols: Vec<String> =
        [Some(spec.symbol()), spec.prepass_symbol(), spec.finish_symbol()].into_iter().flatten().collect();
    let kernel = |symbol: &String| format!("extern \"C\" __global__ void {symbol}(int* x) {{ *x = 1; }}\n");
    Ok(Source::new(spec.name(), symbols.iter().map(kernel).collect::<String>(), &[], symbols))
}

/// An engine on the null driver, warmed up for few rows; tests take turns. None where there is no NVRTC.
fn engine(test: &str) -> Option<(Engine, MutexGuard<'static, ()>)> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let toolchain = common::toolchain(test)?;
    Null::driver();
    let device = Device::open(0).unwrap();
    // SAFETY: nothing runs.
    unsafe { device.context().disable_event_tracking() };
    let cache = KernelCache::builder().renders(render).toolchain(toolchain).no_disk().build();
    let engine = Engine::with_cache(&device, cache).on_miss(OnMiss::Fallback);
    let report = engine.warm_up(&Manifest::new().with(&problem(), &"1..=64".parse().unwrap()));
    assert!(report.is_complete(), "{report}");
    assert!(report.warm.iter().all(|warmed| warmed.load_ms.is_some()));
    Some((engine, turn))
}

#[test]
fn a_call_for_a_loaded_kernel_allocates_nothing() {
    let Some((engine, _turn)) = engine("a_call_for_a_loaded_kernel_allocates_nothing") else { return };
    engine.seal(Seal::Refuse);
    let call = |m| {
        let selected = engine.kernel(&problem(), m).unwrap();
        assert!(selected.tier() == Tier::Memory && selected.elapsed() == Duration::ZERO);
    };
    call(1);
    let before = counting::allocations();
    (1..=64).for_each(call);
    assert_eq!(counting::allocations() - before, 0);
    let stats = engine.stats();
    assert_eq!((stats.resident, stats.fallbacks, stats.cache.sealed.refusals), (65, 0, 0), "{stats}");
    assert_eq!(engine.record().manifest(), Manifest::new().with(&problem(), &"1..=64".parse().unwrap()));
    let error = engine.kernel_or(&problem(), 8192, OnMiss::Block).unwrap_err();
    assert!(error.is_sealed() && error.to_string().contains("for 8192 rows"), "{error}");
    assert!(engine.plan(&problem().m_up_to(8192)).unwrap_err().is_sealed());
    let (stream, none) = (engine.device().context().default_stream(), [] as [Matrix<'_>; 0]);
    assert!(engine.prepare(&stream, &problem(), none).unwrap_err().is_sealed());
}

#[test]
fn a_stream_that_is_captured_loads_nothing() {
    let Some((engine, _turn)) = engine("a_stream_that_is_captured_loads_nothing") else { return };
    let stream = engine.device().context().new_stream().unwrap();
    let loads = engine.stats().loads;
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL).unwrap();
    let error = engine.kernel_in(&stream, &problem(), 8192, OnMiss::Block).unwrap_err();
    assert!(error.is_not_loaded() && error.to_string().contains("captured"), "{error}");
    assert_eq!(engine.stats().loads, loads);
    assert!(engine.kernel_in(&stream, &problem(), 64, OnMiss::Block).unwrap().stands_in_for().is_none());
    assert!(engine.kernel_in(&stream, &problem(), 8192, OnMiss::Fallback).unwrap().stands_in_for().is_some());
    let start = Instant::now();
    while engine.kernel_in(&stream, &problem(), 8192, OnMiss::Fallback).unwrap().stands_in_for().is_some() {
        assert!(start.elapsed() < Duration::from_secs(60), "{}", engine.stats());
        thread::sleep(Duration::from_millis(1));
    }
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    drop(stream.end_capture(flags).unwrap());
    assert_eq!(engine.stats().loads, loads + 1);
    assert!(engine.kernel_in(&stream, &problem(), 1 << 20, OnMiss::Block).is_ok(), "no capture, no refusal");
}

#[test]
fn a_plan_is_recorded_too() {
    let Some((engine, _turn)) = engine("a_plan_is_recorded_too") else { return };
    let plan = engine.plan(&problem().m_up_to(32)).unwrap();
    [7, 30, 9].iter().for_each(|m| assert_eq!(plan.kernel(*m).unwrap().spec().problem(), &problem()));
    assert_eq!(engine.record().manifest().rows(&problem()).unwrap().to_string(), "7..=30");
}

#[test]
fn the_doctor_sees_the_device() {
    let Some((engine, _turn)) = engine("the_doctor_sees_the_device") else { return };
    let diagnosis = doctor();
    assert_eq!(diagnosis.devices[0].what.as_ref().unwrap(), "NVIDIA H200, 132 SMs, compute capability 9.0");
    assert!(diagnosis.to_string().contains("yes       run kernels"), "{diagnosis}");
    drop(engine);
}
