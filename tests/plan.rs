//! Plans, and when kernels go, up to the driver: which here is one without a device.
#![allow(clippy::unwrap_used)]

use warpsmith_testing as common;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cudarc::driver::sys::{self, CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaSlice, CudaStream, DevicePtr};
use half::f16;
use warpsmith::build::Built;
use warpsmith::cache::KernelCache;
use warpsmith::engine::{Engine, Plan};
use warpsmith::format::{Format, Prepared};
use warpsmith::internal::build::Source;
use warpsmith::internal::spec::baseline;
use warpsmith::pick::{Choice, Picker};
use warpsmith::run::{Device, Kernel, Matrix, MatrixMut, Operands, PreparedWeights, Workspace};
use warpsmith::spec::{Activation, Problem, Spec};

use common::counting;
use common::null::{Null, Seen};

/// Rows that the plans below are for, and columns and depth of their problem.
const M: u32 = 48;
const N: usize = 4096;
const K: usize = 1024;

fn problem() -> Problem {
    Problem::dual_gemm(Activation::Silu).n(N as u32).k(K as u32).prepared().m_up_to(M)
}

fn cache() -> KernelCache {
    KernelCache::builder().disk(Path::new(env!("CARGO_TARGET_TMPDIR")).join("plan")).build()
}

/// One device of the null driver. Its counters are for the whole process, so tests that look at them take turns.
struct Bench {
    null: &'static Null,
    device: Device,
    stream: Arc<CudaStream>,
    _turn: MutexGuard<'static, ()>,
}

impl Bench {
    fn new(ordinal: usize) -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let null = Null::driver();
        null.busy(false);
        let (device, stream) = open(ordinal);
        Self { null, device, stream, _turn: turn }
    }
}

/// A device without event tracking.
fn open(ordinal: usize) -> (Device, Arc<CudaStream>) {
    let device = Device::open(ordinal).unwrap();
    // SAFETY: nothing runs.
    unsafe { device.context().disable_event_tracking() };
    let stream = device.context().new_stream().unwrap();
    (device, stream)
}

/// Operands for `M` rows.
struct Buffers {
    a: CudaSlice<f16>,
    weights: PreparedWeights,
    c: CudaSlice<f16>,
    workspace: Workspace,
}

impl Buffers {
    fn new(stream: &Arc<CudaStream>, plan: &Plan) -> Self {
        Self::of_rows(stream, plan, M)
    }

    fn of_rows(stream: &Arc<CudaStream>, plan: &Plan, rows: u32) -> Self {
        let layout = problem().prepared_layout().unwrap();
        let weights = Prepared::from_bytes(layout, vec![0; layout.bytes()]).unwrap();
        Self {
            a: stream.alloc_zeros(rows as usize * K).unwrap(),
            weights: PreparedWeights::from_host(stream, &weights).unwrap(),
            c: stream.alloc_zeros(rows as usize * N).unwrap(),
            workspace: plan.workspace(stream, rows).unwrap(),
        }
    }

    fn operands(&mut self, m: u32) -> Operands<'_> {
        let (a, c) = (Matrix::f16(&self.a), MatrixMut::f16(&mut self.c));
        Operands::prepared(m, a, &self.weights, c).workspace(&mut self.workspace)
    }
}

fn captured(stream: &Arc<CudaStream>, put: impl FnOnce()) -> CudaGraph {
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    put();
    stream.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH).unwrap().unwrap()
}

/// Whether no SM holds a block more than another of a dependent launch, which may begin while other kernels hold some; of few blocks.
fn lies_apart(spec: &Spec, grid: [u32; 3], shared: u32) -> bool {
    let each = grid.iter().product::<u32>().div_ceil(spec.arch().sms());
    each > 3 || (shared + 1024) * (each + 1) > spec.arch().shared_per_block() + 1024
}

#[test]
fn a_plan_launches_the_kernel_of_each_m() {
    let bench = Bench::new(0);
    let plan = Engine::with_cache(&bench.device, cache()).plan(&problem()).unwrap();
    assert!(plan.intervals().count() > 1, "{plan:?}");
    let mut buffers = Buffers::new(&bench.stream, &plan);
    bench.null.watch(true);
    for m in 1..=M {
        let spec = *plan.kernel(m).unwrap().spec();
        let own = plan.intervals().find(|(interval, _)| (interval.first..=interval.last).contains(&m)).unwrap();
        assert_eq!(own.0.choice.spec(), &spec);
        let passes: Vec<_> = spec.passes(m).collect();
        for is_dependent in [false, true] {
            let before = bench.null.launches();
            match is_dependent {
                false => plan.launch(&bench.stream, buffers.operands(m)).unwrap(),
                true => plan.launch_dependent(&bench.stream, buffers.operands(m)).unwrap(),
            }
            assert_eq!(bench.null.launches() - before, passes.len() as u64);
            let (seen, last) = (bench.null.seen(), passes[passes.len() - 1]);
            assert_eq!((seen.kernel(), seen.m()), (spec.symbol(), m));
            assert_eq!((seen.grid, seen.threads), (last.grid, last.threads));
            match is_dependent && last.cluster == [1; 3] {
                false => assert_eq!(seen.shared, last.shared_bytes),
                true => {
                    assert!(seen.shared >= last.shared_bytes && lies_apart(&spec, last.grid, seen.shared), "{spec}")
                }
            }
            assert_eq!(seen.attributes, u32::from(last.cluster != [1; 3]) + u32::from(is_dependent));
            // The map is of all rows that A has, whatever M.
            assert_eq!((seen.map(0, 0), seen.map(0, 2)), (seen.param(0), u64::from(M)));
        }
    }
    bench.null.watch(false);
    let before = bench.null.launches();
    for (m, why) in [(M + 1, "m = 49: the plan of"), (u32::MAX, "is for 1 to 48 rows")] {
        let error = plan.launch(&bench.stream, buffers.operands(m)).unwrap_err();
        assert!(error.is_operand() && error.to_string().contains(why), "{error}");
    }
    assert_eq!(bench.null.launches(), before);
    assert!((1..=M).all(|m| plan.workspace_bytes(m) >= plan.kernel(m).unwrap().spec().workspace_bytes(m)));
}

/// Where kernels find NVFP4 tokens: decoded by a kernel before, in front of the partial sums, or by themselves.
#[test]
fn decoded_tokens_lie_before_partial_sums() {
    let bench = Bench::new(0);
    let engine = Engine::with_cache(&bench.device, cache());
    let problem = problem().a(Format::Nvfp4);
    let (codes, scales) = (bench.stream.alloc_zeros(M as usize * K / 2), bench.stream.alloc_zeros(M as usize * K / 16));
    let (codes, scales) = (codes.unwrap(), scales.unwrap());
    let layout = problem.prepared_layout().unwrap();
    let weights = Prepared::from_bytes(layout, vec![0; layout.bytes()]).unwrap();
    let weights = PreparedWeights::from_host(&bench.stream, &weights).unwrap();
    let mut c = bench.stream.alloc_zeros::<f16>(M as usize * N).unwrap();
    bench.null.watch(true);
    for (variant, is_decoded, is_split) in [
        ("wgmma.t16x64x128.s4.interleaved.ws4.shared.prepass", true, false),
        ("wgmma.t16x64x128.s4.interleaved.ws4.direct.k2.prepass", true, true),
        ("wgmma.t16x64x128.s4.interleaved.ws4.direct.k2", false, true),
        ("wgmma.t16x64x128.s4.interleaved.ws4.shared", false, false),
    ] {
        let choice = Choice::pinned(&problem, &variant.parse().unwrap(), bench.device.arch()).unwrap();
        let selected = engine.kernel_for(choice).unwrap();
        let kernel = selected.kernel();
        let bytes = kernel.spec().workspace_bytes(M).max(1);
        let mut workspace = bench.stream.alloc_zeros::<u8>(bytes as usize).unwrap();
        let base = workspace.device_ptr(&bench.stream).0;
        for m in [1, 7, M] {
            let operands = Operands::prepared(m, Matrix::nvfp4(&codes, &scales), &weights, MatrixMut::f16(&mut c));
            kernel.launch(&bench.stream, operands.workspace(&mut workspace)).unwrap();
            let seen = bench.null.seen();
            let decoded = if is_decoded { u64::from(m) * 2 * K as u64 } else { 0 };
            let partial = if is_split { 2 * 2 * 4 * u64::from(m) * N as u64 } else { 0 };
            assert_eq!(kernel.spec().workspace_bytes(m), decoded + partial, "{variant}");
            assert_eq!(seen.param(80), base + decoded, "{variant}: partial sums");
            if is_decoded {
                assert_eq!((seen.param(88), seen.map(0, 0)), (base, base), "{variant}: decoded tokens");
                assert_eq!(seen.map(0, 2), bytes / (2 * K as u64), "{variant}");
            }
        }
    }
    bench.null.watch(false);
}

#[test]
fn a_launch_allocates_nothing_and_describes_tokens_once() {
    let bench = Bench::new(0);
    let plan = Engine::with_cache(&bench.device, cache()).plan(&problem()).unwrap();
    let mut buffers = Buffers::new(&bench.stream, &plan);
    let mut all = || (1..=M).for_each(|m| plan.launch(&bench.stream, buffers.operands(m)).unwrap());
    all();
    let allocations = counting::allocations();
    all();
    assert_eq!(counting::allocations() - allocations, 0);
}

/// Kernels of a plan that take turns do not push each other's maps out, wherever the tokens are. (One that takes turns with itself, with
/// other rows in its last tile, does.)
#[test]
fn kernels_that_take_turns_describe_tokens_once() {
    const ROWS: u32 = 1024;
    let bench = Bench::new(0);
    let encodes_again = || {
        let plan = Engine::with_cache(&bench.device, cache()).plan(&problem().m_up_to(ROWS)).unwrap();
        assert!(plan.intervals().count() > 4, "few kernels are not the harder case");
        let again = |_| {
            let mut buffers = Buffers::of_rows(&bench.stream, &plan, ROWS);
            let rows: Vec<u32> = plan.intervals().map(|(interval, _)| interval.last).collect();
            let mut all = || rows.iter().for_each(|m| plan.launch(&bench.stream, buffers.operands(*m)).unwrap());
            all();
            let encodes = bench.null.encodes();
            all();
            bench.null.encodes() - encodes
        };
        (0..16).map(again).sum::<u64>()
    };
    // Other tests load kernels meanwhile: by chance, two of a plan may be as many apart as there are places.
    assert!((0..3).any(|_| encodes_again() == 0));
}

/// A plan that is bound encodes nothing for the rows that it was bound with, in threads that never launched before either, and
/// launches what the plan does for all.
/// Operands elsewhere are launched as well, and wrong ones refused.
#[test]
fn a_bound_plan_has_described_tokens_for_every_thread() {
    let bench = Bench::new(0);
    let plan = Engine::with_cache(&bench.device, cache()).plan(&problem()).unwrap();
    let [mut here, mut elsewhere] = [0; 2].map(|_| Buffers::new(&bench.stream, &plan));
    let bound = plan.bind(&bench.stream, &here.operands(M)).unwrap();
    let words = |seen: Seen| [0, 1, 2, 3, 4].map(|map| [0, 1, 2, 3, 6, 7, 8].map(|word| seen.map(map, word)));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            bench.null.watch(true);
            // Makes the context the thread's.
            bound.launch(&bench.stream, here.operands(M)).unwrap();
            assert_eq!(bench.null.encodes(), 0);
            let mut all = Vec::new();
            for m in 1..=M {
                let allocations = counting::allocations();
                bound.launch(&bench.stream, here.operands(m)).unwrap();
                assert_eq!(counting::allocations(), allocations);
                let seen = bench.null.seen();
                assert_eq!((seen.m(), seen.kernel()), (m, plan.kernel(m).unwrap().spec().symbol()));
                assert_eq!((seen.map(0, 0), seen.map(0, 2)), (seen.param(0), u64::from(M)));
                all.push(words(seen));
            }
            for (m, words_then) in (1..=M).zip(all) {
                plan.launch(&bench.stream, here.operands(m)).unwrap();
                assert_eq!(words(bench.null.seen()), words_then, "as the plan describes them");
                bound.launch_dependent(&bench.stream, elsewhere.operands(m)).unwrap();
                assert_eq!(bench.null.seen().map(0, 0), bench.null.seen().param(0));
            }
        });
    });
    let error = bound.launch(&bench.stream, here.operands(M + 1)).unwrap_err();
    assert!(error.is_operand() && error.to_string().contains("m = 49: the plan of"), "{error}");
    assert!(plan.bind(&bench.stream, &here.operands(M + 1)).unwrap_err().is_operand());
    assert!(plan.bind(&open(1).1, &here.operands(M)).unwrap_err().is_operand());
}

#[test]
fn threads_and_streams_share_a_plan() {
    let bench = Bench::new(0);
    let plan = Engine::with_cache(&bench.device, cache()).plan(&problem()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (plan, stream) = (plan.clone(), bench.device.context().new_stream().unwrap());
            scope.spawn(move || {
                let mut buffers = Buffers::new(&stream, &plan);
                bench.null.watch(true);
                for launch in 0..2000 {
                    let m = 1 + (launch * 7 + thread) % M;
                    plan.launch(&stream, buffers.operands(m)).unwrap();
                    let seen = bench.null.seen();
                    assert_eq!((seen.m(), seen.kernel()), (m, plan.kernel(m).unwrap().spec().symbol()));
                    assert_eq!(seen.map(0, 0), seen.param(0));
                }
            });
        }
    });
}

/// Loads into a context take turns, whichever handle of the device they go through. Launches do not wait for them, nor do
/// loads into another context.
#[test]
fn loads_take_turns_and_nothing_else_waits_for_them() {
    let bench = Bench::new(0);
    let plan = Engine::with_cache(&bench.device, cache()).plan(&problem()).unwrap();
    let mut buffers = Buffers::new(&bench.stream, &plan);
    let kernel = plan.kernel(1).unwrap();
    // SAFETY: it was loaded from this spec.
    let built = unsafe { Built::unproven(*kernel.spec(), Arc::clone(kernel.cubin())) };
    let load = |device: &Device| Kernel::load(device, &built).unwrap().load_time();
    let again = open(0).0;
    const HELD: Duration = Duration::from_millis(50);
    bench.null.hold(true);
    let times: Vec<_> = std::thread::scope(|scope| {
        let handles = [&bench.device, &again].into_iter().cycle().take(8);
        let threads: Vec<_> = handles.map(|device| scope.spawn(|| load(device))).collect();
        std::thread::sleep(HELD);
        plan.launch(&bench.stream, buffers.operands(M)).unwrap();
        assert!(load(&open(1).0).waited < HELD);
        bench.null.hold(false);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(bench.null.most_loading(), 1);
    // One was held, and the others' waiting is not counted as loading.
    assert!(times.iter().filter(|time| time.driver >= HELD / 2).count() <= 1, "{times:?}");
    assert!(times.iter().filter(|time| time.waited >= HELD / 2).count() >= 6, "{times:?}");
}

#[test]
fn a_kernel_in_flight_stays_until_it_is_done() {
    let bench = Bench::new(0);
    let engine = Engine::with_cache(&bench.device, cache());
    let plan = engine.plan(&problem()).unwrap();
    let kernels = plan.intervals().map(|(_, kernel)| kernel.spec()).collect::<std::collections::HashSet<_>>().len();
    let mut buffers = Buffers::new(&bench.stream, &plan);
    (1..=M).for_each(|m| plan.launch(&bench.stream, buffers.operands(m)).unwrap());
    bench.null.busy(true);
    let unloaded = bench.null.unloaded();
    drop(engine);
    assert_eq!(bench.device.retired(), 0, "the plan holds them");
    drop(plan);
    assert_eq!(bench.device.retired(), kernels);
    for _ in 0..3 {
        assert_eq!(bench.device.reclaim().unwrap(), 0);
    }
    assert_eq!(bench.null.unloaded(), unloaded);
    bench.null.busy(false);
    assert_eq!(bench.device.reclaim().unwrap(), kernels);
    assert_eq!((bench.null.unloaded() - unloaded, bench.device.retired()), (kernels as i32, 0));
}

/// One kernel in the place of all: this driver finds whatever it is asked for, and hundreds are compiled once.
fn small(_: &Spec) -> warpsmith::Result<Source> {
    Ok(Source::new("small", "extern \"C\" __global__ void small(int* x) { *x = 1; }\n", &[], ["small"]))
}

/// An engine that is asked for thousands of problems, one after the other, keeps hundreds of their kernels.
#[test]
fn what_an_engine_evicts_does_not_stay_loaded() {
    const PROBLEMS: u32 = 2000;
    let bench = Bench::new(0);
    let all: Vec<Problem> = (1..=PROBLEMS).map(|n| Problem::gemm().n(16 * n).k(64)).collect();
    let engine = |device: &Device| {
        let picker = Picker::builder(device.name(), device.arch());
        let picker = all.iter().fold(picker, |picker, problem| picker.pin(problem, &baseline(problem)));
        let disk = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plan-small");
        // SAFETY: the null driver runs nothing.
        let cache = unsafe { KernelCache::builder().render(small) }.disk(disk).build();
        Engine::with_cache_and_picker(device, cache, picker.build().unwrap())
    };
    // How many are served, and how many modules are loaded meanwhile, at most.
    let serve = |engine: &Engine, problems: &[Problem]| {
        let loaded = || bench.null.loaded() - bench.null.unloaded();
        let (before, mut most) = (loaded(), 0);
        for (served, problem) in problems.iter().enumerate() {
            if let Err(error) = engine.kernel(problem, 8) {
                assert!(error.is_not_loaded() && error.to_string().contains("remedy: `Device::reclaim`"), "{error}");
                return (served, most);
            }
            most = most.max(loaded() - before);
        }
        (problems.len(), most)
    };

    // cudarc tracks events here, so that nothing of this crate is captured.
    let device = Device::open(0).unwrap();
    let own = engine(&device);
    let (served, most) = serve(&own, &all);
    assert!(served == all.len() && most <= 2 * 256 + 1, "{served} served, {most} loaded");
    let stats = own.stats();
    assert!(stats.kernels == 256 && stats.retired <= 256, "{stats}");
    assert_eq!(stats.kernels + stats.retired + stats.reclaimed as usize, all.len(), "{stats}");
    // While the device is busy with what may use them, they stay, until there are too many.
    bench.null.busy(true);
    let unloaded = bench.null.unloaded();
    drop(own);
    let (own, retired) = (engine(&device), device.retired());
    let (served, _) = serve(&own, &all);
    assert_eq!((served, bench.null.unloaded()), (256 + 1024 - retired, unloaded), "{}", own.stats());
    bench.null.busy(false);
    assert_eq!(serve(&own, &all).0, all.len());
    drop((own, device));

    // Where somebody may capture, nothing is unloaded unless that is said.
    let (device, stream) = open(0);
    let silent = engine(&device);
    let mut served = 0;
    let graph = captured(&stream, || served = serve(&silent, &all).0);
    assert_eq!((served, silent.stats().reclaimed, silent.stats().retired), (256 + 1024, 0, 1024));
    drop(graph);
    assert_eq!(device.reclaim().unwrap(), 1024);
    assert_eq!(serve(&silent, &all[served..]).0, all.len() - served);
    drop(silent);
    let said = engine(&device).reclaims(true);
    assert_eq!(serve(&said, &all).0, all.len());
    assert!(device.retired() <= 256, "{}", said.stats());
}

#[test]
fn a_graph_holds_what_was_captured_into_it() {
    let bench = Bench::new(0);
    let engine = Engine::with_cache(&bench.device, cache());
    let plan = engine.plan(&problem()).unwrap();
    let mut buffers = Buffers::new(&bench.stream, &plan);
    let graph = captured(&bench.stream, || {
        (0..3).for_each(|_| plan.launch(&bench.stream, buffers.operands(M)).unwrap());
    });
    let loaded = bench.null.loaded();
    let unloaded = bench.null.unloaded();
    drop((engine, plan));
    let retired = bench.device.retired();
    assert_eq!(bench.device.reclaim().unwrap(), retired);
    assert_eq!(bench.null.unloaded() - unloaded, retired as i32);
    graph.launch().unwrap();
    drop(graph);
    assert_eq!(bench.device.retired(), 1);
    assert_eq!(bench.device.reclaim().unwrap(), 1);
    assert_eq!(bench.null.unloaded() - unloaded, retired as i32 + 1);
    assert_eq!(bench.null.loaded(), loaded);
}

/// Marking what is under way would lose a capture. So where one is known nothing is done: of a stream that is named, and
/// of one that waits for the default stream.
#[test]
fn nothing_is_reclaimed_during_a_capture() {
    let bench = Bench::new(0);
    drop(Engine::with_cache(&bench.device, cache()).plan(&problem()).unwrap());
    let (retired, unloaded) = (bench.device.retired(), bench.null.unloaded());
    let refused = |refused: warpsmith::Result<usize>| {
        let error = refused.unwrap_err();
        assert!(error.is_operand() && error.to_string().contains("a stream is being captured"), "{error}");
        assert_eq!((bench.device.retired(), bench.null.unloaded()), (retired, unloaded));
    };
    captured(&bench.stream, || {
        refused(bench.device.reclaim_beside(&[&open(0).1, &bench.stream]));
        // Of a stream that is not named the driver tells too late.
        assert!(bench.device.reclaim().unwrap_err().is_driver());
        assert_eq!(bench.device.retired(), retired);
    });
    let (mut stream, mut graph) = (std::ptr::null_mut(), std::ptr::null_mut());
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: both are places for a handle, and the stream is alive.
    unsafe {
        sys::cuStreamCreate(&raw mut stream, 0).result().unwrap();
        sys::cuStreamBeginCapture_v2(stream, mode).result().unwrap();
        refused(bench.device.reclaim());
        sys::cuStreamEndCapture(stream, &raw mut graph).result().unwrap();
        sys::cuGraphDestroy(graph).result().unwrap();
        sys::cuStreamDestroy_v2(stream).result().unwrap();
    }
    assert_eq!(bench.device.reclaim_beside(&[&bench.stream]).unwrap(), retired);
}

#[test]
fn a_closed_device_unloads_what_is_left_and_spares_its_graphs() {
    let bench = Bench::new(0);
    let (device, stream) = open(1);
    let engine = Engine::with_cache(&device, cache());
    let plan = engine.plan(&problem()).unwrap();
    let kernels = bench.null.unloaded();
    let graph = {
        let mut buffers = Buffers::new(&stream, &plan);
        captured(&stream, || plan.launch(&stream, buffers.operands(M)).unwrap())
    };
    let distinct = plan.intervals().map(|(_, kernel)| kernel.spec()).collect::<std::collections::HashSet<_>>().len();
    drop((engine, device));
    assert_eq!(bench.null.unloaded(), kernels, "the plan holds them");
    drop(plan);
    assert_eq!((bench.null.unloaded() - kernels) as usize, distinct - 1, "all but the graph's");
    graph.launch().unwrap();
    drop(graph);
    assert_eq!((bench.null.unloaded() - kernels) as usize, distinct - 1, "nobody may unload it there");
}

#[test]
fn two_devices_share_a_cache_and_nothing_else() {
    let bench = Bench::new(0);
    let shared = Arc::new(KernelCache::builder().disk(tempfile::tempdir().unwrap().path()).build());
    let problem = problem().m_up_to(8);
    let pairs = [(bench.device.clone(), Arc::clone(&bench.stream)), open(1)];
    let plans =
        pairs.each_ref().map(|(device, _)| Engine::with_cache(device, Arc::clone(&shared)).plan(&problem).unwrap());
    assert_eq!(shared.stats().compiles, plans[0].intervals().count() as u64);
    for (plan, (_, stream)) in plans.iter().zip(&pairs) {
        let mut buffers = Buffers::new(stream, plan);
        plan.launch(stream, buffers.operands(8)).unwrap();
    }
    // Each on its own device, or not at all.
    let mut buffers = Buffers::new(&pairs[0].1, &plans[0]);
    let error = plans[1].launch(&pairs[0].1, buffers.operands(8)).unwrap_err();
    assert!(error.is_operand() && error.to_string().contains("the stream is on device 0, the kernel on device 1"));
    let error = plans[1].launch(&pairs[1].1, buffers.operands(8)).unwrap_err();
    assert!(error.is_operand() && error.to_string().contains("a is on device 0, the stream on device 1"), "{error}");
}

#[test]
fn events_that_cudarc_tracks_and_captures_do_not_go_together() {
    let bench = Bench::new(0);
    let device = Device::open(1).unwrap();
    let stream = device.context().new_stream().unwrap();
    let plan = Engine::with_cache(&device, cache()).plan(&problem().m_up_to(8)).unwrap();
    let mut buffers = Buffers::new(&stream, &plan);
    plan.launch(&stream, buffers.operands(8)).unwrap();
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    let before = bench.null.launches();
    let error = plan.launch(&stream, buffers.operands(8)).unwrap_err();
    assert!(error.is_operand() && error.to_string().contains("disable_event_tracking"), "{error}");
    assert_eq!(bench.null.launches(), before);
    stream.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH).unwrap();
}
