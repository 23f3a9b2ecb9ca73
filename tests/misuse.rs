//! Programs of safe calls that would let memory be freed, moved or read too early. The driver is one without a device that
//! tells which uses of memory no stream orders; each program is refused, or ordered.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use warpsmith_testing as common;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaGraph, CudaSlice, CudaStream, DeviceRepr, ValidAsZeroBits};
use half::f16;
use warpsmith::cache::KernelCache;
use warpsmith::engine::{Engine, Plan};
use warpsmith::format::Format;
use warpsmith::run::{Device, Given, Memory, MemoryMut, Operands, PreparedWeights, Shared, Weights, Workspace};
use warpsmith::spec::{Activation, Problem};
use warpsmith_tune::Timer;

use common::null::Null;

const M: u32 = 16;
const N: usize = 1024;
const K: usize = 512;

fn problem() -> Problem {
    Problem::dual_gemm(Activation::Silu).n(N as u32).k(K as u32).m_up_to(M)
}

/// The null driver, whose records are for the whole process: tests take turns.
struct Tracked {
    null: &'static Null,
    _turn: MutexGuard<'static, ()>,
}

impl Tracked {
    fn new() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let null = Null::driver();
        null.busy(false);
        null.track(true);
        Self { null, _turn: turn }
    }

    fn is_ordered(&self) {
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

fn engine(device: &Device) -> Engine {
    let cubins = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("misuse");
    let install = std::env::var_os("WARPSMITH_TEST_INSTALL").is_some();
    let cache = KernelCache::builder().disk(cubins);
    Engine::with_cache(device, if install { cache.install_if_missing().build() } else { cache.build() })
}

/// Codes and scales of two matrices, made in `stream`.
fn given(stream: &Arc<CudaStream>) -> [(CudaSlice<u8>, CudaSlice<u8>); 2] {
    [(); 2].map(|()| (stream.alloc_zeros(N * K / 2).unwrap(), stream.alloc_zeros(N * K / 16).unwrap()))
}

fn tokens(stream: &Arc<CudaStream>) -> (CudaSlice<f16>, CudaSlice<f16>) {
    (stream.alloc_zeros(M as usize * K).unwrap(), stream.alloc_zeros(M as usize * N).unwrap())
}

/// A plan for prepared weights, and one for weights as they are given.
fn plans(engine: &Engine) -> [(Problem, Plan); 2] {
    [problem().prepared(), problem()].map(|problem| (problem, engine.plan(&problem).unwrap()))
}

/// Launches with tokens and a workspace of its own.
fn launch(plan: &Plan, stream: &Arc<CudaStream>, weights: &Weights<'_>) {
    let ((a, mut c), mut workspace) = (tokens(stream), plan.workspace(stream, M).unwrap());
    plan.launch(stream, Operands::new(M, &a, weights, &mut c).workspace(&mut workspace)).unwrap();
}

/// Made in a stream that nothing else is done in.
fn piece<T: DeviceRepr + ValidAsZeroBits>(device: &Device, elements: usize) -> CudaSlice<T> {
    device.context().new_stream().unwrap().alloc_zeros(elements).unwrap()
}

/// Two groups, whose launches have every operand that there is.
fn grouped() -> Problem {
    problem().a(Format::Nvfp4).grouped(2)
}

fn untracked(device: &Device) {
    // SAFETY: the tests see to the order that cudarc would.
    unsafe { device.context().disable_event_tracking() };
}

fn captured(stream: &Arc<CudaStream>, put: impl FnOnce() -> warpsmith::Result<()>) -> CudaGraph {
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    let put = put();
    let graph = stream.end_capture(CUgraphInstantiate_flags(0)).unwrap().unwrap();
    put.unwrap();
    graph
}

/// That the records of the null driver tell a race at all.
#[test]
fn a_race_is_told() {
    let tracked = Tracked::new();
    let device = Device::open(0).unwrap();
    untracked(&device);
    let (first, second) = (device.context().new_stream().unwrap(), device.context().new_stream().unwrap());
    let mut buffer: CudaSlice<u8> = first.alloc_zeros(64).unwrap();
    second.memset_zeros(&mut buffer).unwrap();
    assert_eq!(tracked.null.races().0, 2, "{:?}", tracked.null.races());
    first.join(&second).unwrap();
    drop(buffer);
    assert_eq!(tracked.null.races().0, 2, "{:?}", tracked.null.races());
}

/// A device opened by its ordinal, and operands and streams of a context that the caller has opened: the natural mistake of
/// an engine that has a context already. The kernel does not care, and what the streams' own context tracks counts.
#[test]
fn a_context_of_the_callers_orders_its_own_buffers() {
    let tracked = Tracked::new();
    let device = Device::open(0).unwrap();
    let (problem, plan) = &plans(&engine(&device))[1];
    assert!(!problem.is_prepared());
    let user = CudaContext::new(0).unwrap();
    let (first, second) = (user.new_stream().unwrap(), user.new_stream().unwrap());
    let ((a, mut c), [gate, up]) = (tokens(&second), given(&second));
    let mut workspace = plan.workspace(&first, M).unwrap();
    let operands = Operands::dual_gemm(M, &a, (&gate.0, &gate.1), (up.0.as_view(), up.1.as_view()), &mut c);
    plan.launch(&first, operands.workspace(&mut workspace)).unwrap();
    drop((a, gate, up));
    second.clone_dtoh(&c).unwrap();
    drop(c);
    tracked.is_ordered();
}

#[test]
fn two_contexts_that_do_not_know_of_each_other_are_refused() {
    let tracked = Tracked::new();
    let device = Device::open(0).unwrap();
    let [_, (_, plan)] = plans(&engine(&device));
    let user = CudaContext::new(0).unwrap();
    let (own, other) = (user.new_stream().unwrap(), device.context().new_stream().unwrap());
    let ((a, mut c), [gate, up]) = (tokens(&own), given(&own));
    let before = tracked.null.launches();
    let operands = Operands::dual_gemm(M, &a, (&gate.0, &gate.1), (&up.0, &up.1), &mut c);
    let error = plan.launch(&other, operands).unwrap_err();
    assert!(error.is_operand() && error.to_string().contains("two CudaContext objects"), "{error}");
    let other_gate = given(&other);
    let operands = Operands::dual_gemm(M, &a, (&gate.0, &gate.1), (&other_gate[1].0, &up.1), &mut c);
    assert!(plan.launch(&own, operands).unwrap_err().to_string().contains("b2 and the stream"));
    assert_eq!(tracked.null.launches(), before);
    let error = Shared::written_in(&other, up.0).unwrap_err();
    assert!(error.is_operand() && error.to_string().contains("the memory and the stream"), "{error}");
}

/// The main use of weights: several streams read them at a time, and then they are dropped.
#[test]
fn weights_that_streams_share_are_freed_when_all_are_done() {
    let tracked = Tracked::new();
    let device = Device::open(0).unwrap();
    let engine = engine(&device);
    for (problem, plan) in plans(&engine) {
        let streams: Vec<_> = (0..3).map(|_| device.context().new_stream().unwrap()).collect();
        let mut weights = match problem.is_prepared() {
            true => engine.weights(&streams[0], &problem, given(&streams[0])).unwrap(),
            false => Weights::Given(kept(&streams[0], &problem)),
        };
        for round in 0..2 {
            for stream in &streams {
                let (a, mut c) = tokens(stream);
                let mut workspace = plan.workspace(stream, M).unwrap();
                let operands = Operands::new(M, &a, &weights, &mut c).workspace(&mut workspace);
                plan.launch(stream, operands).unwrap();
            }
            if round == 0 {
                // In the stream that they were made in, in which nothing waits for the others.
                weights = match problem.is_prepared() {
                    true => engine.weights(&streams[0], &problem, given(&streams[0])).unwrap(),
                    false => Weights::Given(kept(&streams[0], &problem)),
                };
            }
        }
        drop(weights);
        tracked.is_ordered();
    }
}

/// As the weights of a device without a path that takes them prepared.
fn kept(stream: &Arc<CudaStream>, problem: &Problem) -> Given<'static> {
    Given::new(stream, problem, given(stream)).unwrap()
}

/// However many streams read weights, and however often: the last launch of each counts, also while all are under way.
#[test]
fn weights_are_freed_behind_the_last_launch_of_every_stream() {
    let tracked = Tracked::new();
    let device = Device::open(0).unwrap();
    let engine = engine(&device);
    let [(problem, plan), _] = plans(&engine);
    let streams: Vec<_> = (0..10).map(|_| device.context().new_stream().unwrap()).collect();
    let weights = engine.weights(&streams[0], &problem, given(&streams[0])).unwrap();
    tracked.null.busy(true);
    streams.iter().chain(&streams).for_each(|stream| launch(&plan, stream, &weights));
    drop(weights);
    tracked.is_ordered();
}

/// The default stream of each thread is another one on each, under one handle.
#[test]
fn weights_are_freed_behind_the_default_streams_of_all_threads() {
    let tracked = Tracked::new();
    let device = Device::open(0).unwrap();
    let engine = engine(&device);
    let [(problem, plan), _] = plans(&engine);
    let own = device.context().new_stream().unwrap();
    let weights = engine.weights(&own, &problem, given(&own)).unwrap();
    let launch = || launch(&plan, &device.context().per_thread_stream(), &weights);
    std::thread::scope(|scope| scope.spawn(launch).join().unwrap());
    launch();
    drop(weights);
    tracked.is_ordered();
}

/// cudarc takes a context for one of a single stream while it has made none itself.
#[test]
fn memory_is_freed_behind_streams_that_cudarc_did_not_make() {
    let tracked = Tracked::new();
    let device = Device::open(0).unwrap();
    let [(problem, plan), (_, unprepared)] = plans(&engine(&device));
    let raw = || {
        let mut handle = std::ptr::null_mut();
        // SAFETY: a valid place for a stream, which is never destroyed.
        unsafe {
            sys::cuStreamCreate(&raw mut handle, 1).result().unwrap();
            device.raw_stream(handle.cast(), None).unwrap()
        }
    };
    let [first, second, other] = [(); 3].map(|()| raw());
    let weights = engine(&device).weights(first.cudarc(), &problem, given(first.cudarc())).unwrap();
    let [gate, up] = given(first.cudarc());
    tracked.null.busy(true);
    for stream in [&first, &second, &other] {
        launch(&plan, stream.cudarc(), &weights);
        let (a, mut c) = tokens(&device.context().default_stream());
        let mut workspace = unprepared.workspace(stream.cudarc(), M).unwrap();
        let operands = Operands::dual_gemm(M, &a, (&gate.0, &gate.1), (&up.0, &up.1), &mut c);
        unprepared.launch(stream, operands.workspace(&mut workspace)).unwrap();
    }
    drop((weights, gate, up));
    tracked.is_ordered();
}

/// As above, where there is no stream of anybody's.
#[test]
fn weights_are_freed_behind_default_streams_that_are_all_there_is() {
    let tracked = Tracked::new();
    let device = Device::open(0).unwrap();
    let [(problem, plan), _] = plans(&engine(&device));
    let own = device.context().per_thread_stream();
    let weights = engine(&device).weights(&own, &problem, given(&own)).unwrap();
    tracked.null.busy(true);
    std::thread::scope(|scope| {
        scope.spawn(|| launch(&plan, &device.context().per_thread_stream(), &weights)).join().unwrap();
    });
    drop(weights);
    tracked.is_ordered();
}

/// Whoever shares a plain slice gets the same, by streams that wait.
#[test]
fn a_slice_that_streams_share_is_freed_when_all_are_done() {
    let tracked = Tracked::new();
    let device = Device::open(0).unwrap();
    let [_, (_, plan)] = plans(&engine(&device));
    let [first, second, third] = [(); 3].map(|()| device.context().new_stream().unwrap());
    let [gate, up] = given(&third);
    for stream in [&first, &second, &first, &third] {
        let (a, mut c) = tokens(stream);
        let mut workspace = plan.workspace(stream, M).unwrap();
        let operands = Operands::dual_gemm(M, &a, (&gate.0, &gate.1), (&up.0, &up.1), &mut c);
        plan.launch(stream, operands.workspace(&mut workspace)).unwrap();
    }
    drop((gate, up));
    tracked.is_ordered();
}

/// Each is used by a stream that it was not made in, and freed without regard to the others.
#[test]
fn every_operand_that_a_launch_can_have_is_ordered() {
    let tracked = Tracked::new();
    let device = Device::open(0).unwrap();
    let plan = engine(&device).plan(&grouped()).unwrap();
    let [a, gate, up] = [M as usize, 2 * N, 2 * N]
        .map(|rows| (piece::<u8>(&device, rows * K / 2), piece::<u8>(&device, rows * K / 16)));
    let [alpha1, alpha2] = [(); 2].map(|()| piece::<f32>(&device, 2));
    let (offsets, mut c) = (piece::<i32>(&device, 3), piece::<f16>(&device, M as usize * N));
    let mut workspace = piece::<u8>(&device, 1 << 20);
    tracked.null.watch(true);
    let operands = Operands::dual_gemm(M, (&a.0, &a.1), (&gate.0, &gate.1), (&up.0, &up.1), &mut c);
    let operands = operands.alphas(&alpha1, &alpha2).offsets(&offsets).workspace(&mut workspace);
    plan.launch(&device.context().new_stream().unwrap(), operands).unwrap();
    assert!((0..11).all(|operand| tracked.null.seen().param(8 * operand) != 0));
    tracked.null.watch(false);
    drop((a, gate, up, alpha1, alpha2, offsets, c, workspace));
    tracked.is_ordered();
}

/// Streams that share weights do not wait for each other.
#[test]
fn sharing_weights_orders_no_streams() {
    let tracked = Tracked::new();
    let device = Device::open(0).unwrap();
    let engine = engine(&device);
    let [(problem, plan), _] = plans(&engine);
    let [first, second] = [(); 2].map(|()| device.context().new_stream().unwrap());
    let weights = engine.weights(&first, &problem, given(&first)).unwrap();
    first.synchronize().unwrap();
    // Memory that nothing orders: both streams write it, so that a race shows that neither waits for the other.
    let (a, c) = tokens(&first);
    let both = |stream: &Arc<CudaStream>| {
        let mut workspace = plan.workspace(stream, M).unwrap();
        let address = |slice: &CudaSlice<f16>| cudarc::driver::DevicePtr::device_ptr(slice, &first).0;
        // SAFETY: nothing runs on the null driver.
        let (a, c) = unsafe {
            (Memory::<f16>::from_raw(address(&a), a.len()), MemoryMut::<f16>::from_raw(address(&c), c.len()))
        };
        plan.launch(stream, Operands::new(M, a, &weights, c).workspace(&mut workspace)).unwrap();
    };
    first.synchronize().unwrap();
    both(&first);
    let before = tracked.null.races().0;
    both(&second);
    assert!(tracked.null.races().0 > before);
}

/// What is given away to be repacked is freed behind the launch that does it, in whichever stream it was made.
#[test]
fn weights_that_are_given_away_are_freed_behind_the_launch() {
    let tracked = Tracked::new();
    for is_tracked in [true, false] {
        let device = Device::open(0).unwrap();
        if !is_tracked {
            untracked(&device);
        }
        let engine = engine(&device);
        let (first, second) = (device.context().new_stream().unwrap(), device.context().new_stream().unwrap());
        let given = given(&first);
        second.join(&first).unwrap();
        let weights = engine.weights(&second, &problem(), given).unwrap();
        assert!(matches!(weights, Weights::Prepared(_)));
        drop(weights);
        tracked.is_ordered();
    }
}

/// A dependent launch reads weights before what is ahead of it in its stream is done: not while that may be what writes
/// them.
#[test]
fn a_dependent_launch_is_plain_until_its_weights_are_there() {
    let tracked = Tracked::new();
    let device = Device::open(0).unwrap();
    untracked(&device);
    let engine = engine(&device);
    let [(problem, plan), _] = plans(&engine);
    let stream = device.context().new_stream().unwrap();
    let weights = engine.weights(&stream, &problem, given(&stream)).unwrap();
    let (a, mut c) = tokens(&stream);
    let mut workspace = plan.workspace(&stream, M).unwrap();
    tracked.null.watch(true);
    let mut attributes = |is_busy| {
        tracked.null.busy(is_busy);
        let operands = Operands::new(M, &a, &weights, &mut c).workspace(&mut workspace);
        plan.launch_dependent(&stream, operands).unwrap();
        tracked.null.seen().attributes
    };
    let (plain, dependent, later) = (attributes(true), attributes(false), attributes(true));
    assert_eq!((plain + 1, later), (dependent, dependent));
    tracked.null.watch(false);
    tracked.is_ordered();
}

/// Weights that were made in one stream are waited for by another, whether cudarc tracks events or not.
#[test]
fn another_stream_waits_for_weights_to_be_there() {
    let tracked = Tracked::new();
    for is_tracked in [true, false] {
        let device = Device::open(0).unwrap();
        if !is_tracked {
            untracked(&device);
        }
        let engine = engine(&device);
        let [(problem, plan), _] = plans(&engine);
        let (first, second) = (device.context().new_stream().unwrap(), device.context().new_stream().unwrap());
        tracked.null.busy(true);
        let weights = engine.weights(&first, &problem, given(&first)).unwrap();
        let (a, mut c) = tokens(&second);
        let mut workspace = plan.workspace(&second, M).unwrap();
        plan.launch(&second, Operands::new(M, &a, &weights, &mut c).workspace(&mut workspace)).unwrap();
        // Without tracking this is the caller's to order.
        second.synchronize().unwrap();
        drop(weights);
        tracked.is_ordered();
        tracked.null.busy(false);
    }
}

/// Weights as they are given, each piece of them from a stream of its own.
#[test]
fn another_stream_waits_for_every_piece_of_weights() {
    let tracked = Tracked::new();
    let device = Device::open(0).unwrap();
    untracked(&device);
    let [_, (problem, plan)] = plans(&engine(&device));
    let shared = |bytes| {
        let slice = piece::<u8>(&device, bytes);
        Shared::written_in(&Arc::clone(slice.stream()), slice).unwrap()
    };
    tracked.null.busy(true);
    let stream = device.context().new_stream().unwrap();
    let b = [(); 2].map(|()| (shared(N * K / 2), shared(N * K / 16)));
    let weights = Weights::Given(Given::new(&stream, &problem, b).unwrap());
    launch(&plan, &stream, &weights);
    // Without tracking this is the caller's to order.
    stream.synchronize().unwrap();
    drop(weights);
    tracked.is_ordered();
}

/// What a stream takes over it has waited for, so that its event stands for what wrote it in another one, too: a dependent
/// launch goes by that.
#[test]
fn weights_from_another_stream_are_not_read_too_early() {
    let tracked = Tracked::new();
    let device = Device::open(0).unwrap();
    let [(problem, plan), _] = plans(&engine(&device));
    let layout = problem.prepared_layout().unwrap();
    let stream = device.context().new_stream().unwrap();
    let weights = PreparedWeights::from_device(&stream, layout, piece::<u8>(&device, layout.bytes())).unwrap();
    let ((a, mut c), mut workspace) = (tokens(&stream), plan.workspace(&stream, M).unwrap());
    tracked.null.watch(true);
    let mut attributes = |is_dependent: bool| {
        let operands = Operands::prepared(M, &a, &weights, &mut c).workspace(&mut workspace);
        match is_dependent {
            true => plan.launch_dependent(&stream, operands).unwrap(),
            false => plan.launch(&stream, operands).unwrap(),
        }
        tracked.null.seen().attributes
    };
    assert_eq!(attributes(true), attributes(false) + 1);
    tracked.null.watch(false);
    tracked.is_ordered();
}

/// A graph may be replayed in any stream: what it is to read is there before it is captured.
#[test]
fn a_graph_reads_weights_that_are_there() {
    let tracked = Tracked::new();
    let device = Device::open(0).unwrap();
    untracked(&device);
    let engine = engine(&device);
    let [(problem, plan), _] = plans(&engine);
    let [first, second, third] = [(); 3].map(|()| device.context().new_stream().unwrap());
    tracked.null.busy(true);
    let weights = engine.weights(&first, &problem, given(&first)).unwrap();
    let ((a, mut c), mut workspace) = (tokens(&second), plan.workspace(&second, M).unwrap());
    third.join(&second).unwrap();
    let graph =
        captured(&second, || plan.launch(&second, Operands::new(M, &a, &weights, &mut c).workspace(&mut workspace)));
    // SAFETY: graph and stream are alive.
    unsafe { sys::cuGraphLaunch(graph.cu_graph_exec(), third.cu_stream()) }.result().unwrap();
    third.synchronize().unwrap();
    tracked.is_ordered();
}

/// A timer replays what was launched once: what the closure owns has to live so long.
#[test]
fn a_timer_keeps_what_its_closure_owns() {
    let tracked = Tracked::new();
    let device = Device::open(0).unwrap();
    let stream = device.context().new_stream().unwrap();
    let error = Timer::new(&stream).unwrap_err();
    assert!(error.is_operand() && error.to_string().contains("disable_event_tracking"), "{error}");
    untracked(&device);
    let engine = engine(&device);
    let [(problem, plan), _] = plans(&engine);
    for is_in_turn in [false, true] {
        let (plan, weights) = (plan.clone(), engine.weights(&stream, &problem, given(&stream)).unwrap());
        let ((a, mut c), mut workspace) = (tokens(&stream), plan.workspace(&stream, M).unwrap());
        let timer = Timer::new(&stream).unwrap();
        let stream = Arc::clone(&stream);
        let mut launch = move || plan.launch(&stream, Operands::new(M, &a, &weights, &mut c).workspace(&mut workspace));
        let median_us = match is_in_turn {
            false => timer.time(1, move |_| launch()).unwrap().median_us,
            true => timer.time_in_turn(1, 1, 1, move |_, _| launch()).unwrap()[0][0],
        };
        assert!(median_us > 0.0);
        tracked.is_ordered();
    }
}

/// A graph holds weights and workspace, also when the workspace has grown, and gives them back on a thread of the driver's,
/// where nothing may be freed: `reclaim` does it.
#[test]
fn a_graph_holds_weights_and_workspace() {
    let tracked = Tracked::new();
    let device = Device::open(0).unwrap();
    untracked(&device);
    let engine = engine(&device);
    for (problem, plan) in plans(&engine) {
        let stream = device.context().new_stream().unwrap();
        let weights = match problem.is_prepared() {
            true => engine.weights(&stream, &problem, given(&stream)).unwrap(),
            false => Weights::Given(kept(&stream, &problem)),
        };
        let (a, mut c) = tokens(&stream);
        let before = tracked.null.allocations();
        let mut workspace = Workspace::of_bytes(&stream, plan.workspace_bytes(M).max(64)).unwrap();
        let graph = captured(&stream, || {
            plan.launch(&stream, Operands::new(M, &a, &weights, &mut c).workspace(&mut workspace))
        });
        workspace.reserve(workspace.bytes() + 1).unwrap();
        assert_eq!(tracked.null.allocations(), before + 2, "the graph's and the larger one");
        drop((weights, workspace));
        graph.launch().unwrap();
        stream.synchronize().unwrap();
        tracked.is_ordered();
        drop(graph);
        let held = tracked.null.allocations();
        device.reclaim().unwrap();
        assert!(tracked.null.allocations() < held);
        drop((a, c));
    }
    tracked.is_ordered();
    drop(engine);
    assert_eq!(tracked.null.allocations(), 0);
}

/// Whatever is shared, not weights alone.
#[test]
fn a_graph_holds_every_operand_that_is_shared() {
    fn shared<T: DeviceRepr + ValidAsZeroBits>(stream: &Arc<CudaStream>, elements: usize) -> Shared<T> {
        stream.alloc_zeros(elements).unwrap().into()
    }
    let tracked = Tracked::new();
    let device = Device::open(0).unwrap();
    untracked(&device);
    let plan = engine(&device).plan(&grouped()).unwrap();
    let stream = device.context().new_stream().unwrap();
    let [a, gate, up] =
        [M as usize, 2 * N, 2 * N].map(|rows| [2, 16].map(|part| shared::<u8>(&stream, rows * K / part)));
    let [alpha1, alpha2] = [(); 2].map(|()| shared::<f32>(&stream, 2));
    let (offsets, (_, mut c)) = (shared::<i32>(&stream, 3), tokens(&stream));
    let mut workspace = plan.workspace(&stream, M).unwrap();
    let graph = captured(&stream, || {
        let operands = Operands::dual_gemm(M, (&a[0], &a[1]), (&gate[0], &gate[1]), (&up[0], &up[1]), &mut c);
        plan.launch(&stream, operands.alphas(&alpha1, &alpha2).offsets(&offsets).workspace(&mut workspace))
    });
    drop((a, gate, up, alpha1, alpha2, offsets, workspace));
    graph.launch().unwrap();
    stream.synchronize().unwrap();
    drop(graph);
    device.reclaim().unwrap();
    tracked.is_ordered();
    assert_eq!(tracked.null.allocations(), 1, "all but C are given back");
}

/// The default stream of each thread can be captured though cudarc has made no stream: then nobody has vouched for what
/// graphs borrow.
#[test]
fn a_capture_needs_somebody_to_vouch_for_what_is_borrowed() {
    let _tracked = Tracked::new();
    let device = Device::open(0).unwrap();
    let [_, (_, plan)] = plans(&engine(&device));
    let stream = device.context().per_thread_stream();
    let ((a, mut c), [gate, up]) = (tokens(&stream), given(&stream));
    let mut workspace = plan.workspace(&stream, M).unwrap();
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    let operands = Operands::dual_gemm(M, &a, (&gate.0, &gate.1), (&up.0, &up.1), &mut c);
    let refused = plan.launch(&stream, operands.workspace(&mut workspace)).unwrap_err();
    drop(stream.end_capture(CUgraphInstantiate_flags(0)));
    assert!(refused.is_operand() && refused.to_string().contains("disable_event_tracking"), "{refused}");
}

#[test]
fn a_workspace_is_one_streams() {
    let tracked = Tracked::new();
    let device = Device::open(0).unwrap();
    let [_, (_, plan)] = plans(&engine(&device));
    let (first, second) = (device.context().new_stream().unwrap(), device.context().new_stream().unwrap());
    let ((a, mut c), [gate, up]) = (tokens(&second), given(&second));
    let mut workspace = Workspace::of_bytes(&first, 1 << 20).unwrap();
    let operands = Operands::dual_gemm(M, &a, (&gate.0, &gate.1), (&up.0, &up.1), &mut c);
    let error = plan.launch(&second, operands.workspace(&mut workspace)).unwrap_err();
    assert!(error.to_string().contains("another stream's"), "{error}");
    tracked.is_ordered();
}

/// The default stream of each thread is another one on each, under one handle.
#[test]
fn a_workspace_may_go_to_another_thread_with_a_stream_of_its_own() {
    let tracked = Tracked::new();
    let device = Device::open(0).unwrap();
    untracked(&device);
    let [_, (_, plan)] = plans(&engine(&device));
    let stream = device.context().per_thread_stream();
    let mut workspace = Workspace::of_bytes(&stream, 1 << 20).unwrap();
    let mut launch = || {
        let ((a, mut c), [gate, up]) = (tokens(&stream), given(&stream));
        let operands = Operands::dual_gemm(M, &a, (&gate.0, &gate.1), (&up.0, &up.1), &mut c);
        plan.launch(&stream, operands.workspace(&mut workspace)).unwrap();
    };
    launch();
    std::thread::scope(|scope| scope.spawn(&mut launch).join().unwrap());
    launch();
    drop(workspace);
    tracked.is_ordered();
}

/// A thread that grows or drops it waits for what another one has launched.
#[test]
fn a_workspace_of_all_threads_is_freed_behind_their_launches() {
    let tracked = Tracked::new();
    let device = Device::open(0).unwrap();
    untracked(&device);
    let [_, (_, plan)] = plans(&engine(&device));
    let stream = device.context().per_thread_stream();
    for grows in [true, false] {
        let mut workspace = Workspace::of_bytes(&stream, 1 << 20).unwrap();
        let ((a, mut c), [gate, up]) = (tokens(&stream), given(&stream));
        let operands = Operands::dual_gemm(M, &a, (&gate.0, &gate.1), (&up.0, &up.1), &mut c);
        plan.launch(&stream, operands.workspace(&mut workspace)).unwrap();
        let elsewhere = || match grows {
            true => workspace.reserve(2 << 20).unwrap(),
            false => drop(workspace),
        };
        std::thread::scope(|scope| scope.spawn(elsewhere).join().unwrap());
        tracked.is_ordered();
    }
}

#[test]
fn no_rows_launch_nothing() {
    let tracked = Tracked::new();
    let device = Device::open(0).unwrap();
    let engine = engine(&device);
    for (problem, plan) in plans(&engine) {
        let stream = device.context().new_stream().unwrap();
        let (a, mut c) = tokens(&stream);
        let weights = match problem.is_prepared() {
            true => engine.weights(&stream, &problem, given(&stream)).unwrap(),
            false => Weights::Given(kept(&stream, &problem)),
        };
        let before = tracked.null.launches();
        plan.launch(&stream, Operands::new(0, &a, &weights, &mut c)).unwrap();
        plan.launch_dependent(&stream, Operands::new(0, &a, &weights, &mut c)).unwrap();
        assert_eq!(tracked.null.launches(), before);
    }
    // They are none to be recorded either.
    assert!(engine.record().manifest().to_string().lines().all(|line| !line.contains("0..=")));
}

/// Weights that lie on the device already, copied from where they were prepared before.
#[test]
fn prepared_weights_are_taken_over() {
    let tracked = Tracked::new();
    let device = Device::open(0).unwrap();
    let engine = engine(&device);
    let [(problem, plan), _] = plans(&engine);
    let stream = device.context().new_stream().unwrap();
    let layout = problem.prepared_layout().unwrap();
    assert_eq!(engine.weights_bytes(&problem).unwrap(), layout.bytes() as u64);
    let bytes: CudaSlice<u8> = stream.alloc_zeros(layout.bytes()).unwrap();
    let weights = PreparedWeights::from_device(&stream, layout, bytes).unwrap();
    let (a, mut c) = tokens(&stream);
    let mut workspace = plan.workspace(&stream, M).unwrap();
    plan.launch(&stream, Operands::prepared(M, &a, &weights, &mut c).workspace(&mut workspace)).unwrap();
    let short: CudaSlice<u8> = stream.alloc_zeros(layout.bytes() - 1).unwrap();
    let error = PreparedWeights::from_device(&stream, layout, short).unwrap_err();
    assert!(error.is_operand() && error.to_string().contains(&format!("takes {} bytes", layout.bytes())), "{error}");
    let room: CudaSlice<u8> = stream.alloc_zeros(layout.bytes()).unwrap();
    let into = engine.weights_into(&stream, &problem, given(&stream), room).unwrap();
    plan.launch(&stream, Operands::new(M, &a, &into, &mut c).workspace(&mut workspace)).unwrap();
    drop((weights, into));
    tracked.is_ordered();
}
