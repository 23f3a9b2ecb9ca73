//! What the programs are made of.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaSlice, CudaStream, DeviceRepr, ValidAsZeroBits};
use half::f16;
use warpsmith::cache::KernelCache;
use warpsmith::engine::{Engine, Plan};
use warpsmith::format::Format;
use warpsmith::run::{Device, Given, Operands, Weights};
use warpsmith::spec::{Activation, Problem};
use warpsmith_testing::null::Null;

pub const M: u32 = 16;
pub const N: usize = 1024;
pub const K: usize = 512;

pub fn problem() -> Problem {
    Problem::dual_gemm(Activation::Silu).n(N as u32).k(K as u32).m_up_to(M)
}

/// The null driver, whose records are for the whole process: tests take turns.
pub struct Tracked {
    pub null: &'static Null,
    _turn: MutexGuard<'static, ()>,
}

impl Tracked {
    pub fn new() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let null = Null::driver();
        null.busy(false);
        null.track(true);
        Self { null, _turn: turn }
    }

    pub fn is_ordered(&self) {
        let (races, last) = self.null.races();
        assert_eq!(races, 0, "{last}");
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.null.track(false);
        self.null.busy(false);
    }
}

pub fn engine(device: &Device) -> Engine {
    let cubins = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("misuse");
    let install = std::env::var_os("WARPSMITH_TEST_INSTALL").is_some();
    let cache = KernelCache::builder().disk(cubins);
    Engine::with_cache(device, if install { cache.install_if_missing().build() } else { cache.build() })
}

/// Codes and scales of two matrices, made in `stream`.
pub fn given(stream: &Arc<CudaStream>) -> [(CudaSlice<u8>, CudaSlice<u8>); 2] {
    [(); 2].map(|()| (stream.alloc_zeros(N * K / 2).unwrap(), stream.alloc_zeros(N * K / 16).unwrap()))
}

pub fn tokens(stream: &Arc<CudaStream>) -> (CudaSlice<f16>, CudaSlice<f16>) {
    (stream.alloc_zeros(M as usize * K).unwrap(), stream.alloc_zeros(M as usize * N).unwrap())
}

/// A plan for prepared weights, and one for weights as they are given.
pub fn plans(engine: &Engine) -> [(Problem, Plan); 2] {
    [problem().prepared(), problem()].map(|problem| (problem, engine.plan(&problem).unwrap()))
}

/// Launches with tokens and a workspace of its own.
pub fn launch(plan: &Plan, stream: &Arc<CudaStream>, weights: &Weights<'_>) {
    let ((a, mut c), mut workspace) = (tokens(stream), plan.workspace(stream, M).unwrap());
    plan.launch(stream, Operands::new(M, &a, weights, &mut c).workspace(&mut workspace)).unwrap();
}

/// Made in a stream that nothing else is done in.
pub fn piece<T: DeviceRepr + ValidAsZeroBits>(device: &Device, elements: usize) -> CudaSlice<T> {
    device.context().new_stream().unwrap().alloc_zeros(elements).unwrap()
}

/// Two groups, whose launches have every operand that there is.
pub fn grouped() -> Problem {
    problem().a(Format::Nvfp4).grouped(2)
}

pub fn untracked(device: &Device) {
    // SAFETY: the tests see to the order that cudarc would.
    unsafe { device.context().disable_event_tracking() };
}

pub fn captured(stream: &Arc<CudaStream>, put: impl FnOnce() -> warpsmith::Result<()>) -> CudaGraph {
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    let put = put();
    let graph = stream.end_capture(CUgraphInstantiate_flags(0)).unwrap().unwrap();
    put.unwrap();
    graph
}

/// As the weights of a device without a path that takes them prepared.
pub fn kept(stream: &Arc<CudaStream>, problem: &Problem) -> Given<'static> {
    Given::new(stream, problem, given(stream)).unwrap()
}
