//! Plans on a GPU: right for every M, shared by threads and streams, captured, replayed, and outlived by what they launched.

use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys::{self, CUstreamCaptureMode};
use cudarc::driver::{CudaSlice, CudaStream};
use half::f16;
use warpsmith::cache::KernelCache;
use warpsmith::engine::{Engine, Plan};
use warpsmith::format::Format;
use warpsmith::run::{Device, Matrix, MatrixMut, Operands, PreparedWeights};
use warpsmith::spec::{Activation, Problem};
use warpsmith_tune::gate::Guarded;
use warpsmith_tune::{HostMatrix, HostOperands, Spread, wait};

use crate::bench::{Bench, captured, text};

const WAIT: Duration = Duration::from_secs(10);
/// Rows that the plans are for.
const M: u32 = 512;
/// Rows that A and the workspace have beyond M, full of NaN.
const BEYOND: usize = 200;

fn dual() -> Problem {
    Problem::dual_gemm(Activation::Silu).n(272).k(448).prepared().m_up_to(M)
}

fn problems() -> [Problem; 4] {
    [dual(), dual().grouped(5), dual().a(Format::Nvfp4), dual().a(Format::Nvfp4).grouped(5)]
}

fn engine(device: &Device) -> Engine {
    Engine::with_cache(device, KernelCache::builder().install_if_missing().no_disk().build())
}

/// Operands on a device, with what is expected of them.
struct Case {
    host: HostOperands,
    a: A,
    weights: PreparedWeights,
    offsets: Option<CudaSlice<i32>>,
    workspace: CudaSlice<u8>,
    guarded: Guarded,
    c: CudaSlice<u8>,
}

enum A {
    F16(CudaSlice<f16>),
    Nvfp4(CudaSlice<u8>, CudaSlice<u8>),
}

impl Case {
    fn new(stream: &Arc<CudaStream>, plan: &Plan, rows: &[u32], seed: u64) -> Result<Self, String> {
        let mut host = HostOperands::random(plan.problem(), rows, Spread::Every, seed);
        host.alpha = vec![vec![0.01], vec![0.02]];
        let a = match &host.a {
            HostMatrix::F16(values) => {
                let nan = std::iter::repeat_n(f16::NAN, BEYOND * plan.problem().depth() as usize);
                let values: Vec<f16> = values.iter().copied().chain(nan).collect();
                A::F16(stream.clone_htod(&values).map_err(text)?)
            }
            HostMatrix::Nvfp4 { codes, scales } => {
                A::Nvfp4(stream.clone_htod(codes).map_err(text)?, stream.clone_htod(scales).map_err(text)?)
            }
            other => return Err(format!("A is {}", other.format())),
        };
        let prepared = host.prepare().map_err(text)?.ok_or("no prepared weights")?;
        // Every two bytes of it are NaN.
        let workspace = vec![0xff; plan.workspace_bytes(M) as usize + BEYOND * 2 * plan.problem().depth() as usize];
        let guarded = Guarded::new(host.m as usize, plan.problem().columns() as usize, Format::F16).map_err(text)?;
        Ok(Self {
            a,
            weights: PreparedWeights::from_host(stream, &prepared).map_err(text)?,
            offsets: host.offsets.as_ref().map(|ends| stream.clone_htod(ends)).transpose().map_err(text)?,
            workspace: stream.clone_htod(&workspace).map_err(text)?,
            c: stream.clone_htod(&guarded.fill()).map_err(text)?,
            guarded,
            host,
        })
    }

    fn launch(&mut self, stream: &CudaStream, plan: &Plan, is_dependent: bool) -> Result<(), String> {
        self.with_operands(|operands| match is_dependent {
            false => plan.launch(stream, operands),
            true => plan.launch_dependent(stream, operands),
        })
    }

    fn with_operands<R>(&mut self, put: impl FnOnce(Operands<'_>) -> warpsmith::Result<R>) -> Result<R, String> {
        let mut view = self.c.slice_mut(self.guarded.result());
        let c = MatrixMut::from_bytes(Format::F16, &mut view).map_err(text)?;
        let a = match &self.a {
            A::F16(values) => Matrix::f16(values),
            A::Nvfp4(codes, scales) => Matrix::nvfp4(codes, scales),
        };
        let operands = Operands::prepared(self.host.m, a, &self.weights, c).alphas(0.01, 0.02);
        let operands = match &self.offsets {
            Some(offsets) => operands.offsets(offsets.as_view()),
            None => operands,
        };
        put(operands.workspace(&mut self.workspace)).map_err(text)
    }

    /// What lies where C is, once the stream is done.
    fn found(&self, stream: &Arc<CudaStream>) -> Result<Vec<u8>, String> {
        wait(stream, WAIT).map_err(text)?;
        stream.clone_dtoh(&self.c).map_err(text)
    }

    fn judge(&self, found: &[u8], what: &str) -> Result<(), String> {
        let verdict = self.guarded.judge(found, &self.host.reference().map_err(text)?).map_err(text)?;
        if verdict.passed() { Ok(()) } else { Err(format!("{what}: {verdict}")) }
    }

    fn clear(&mut self, stream: &Arc<CudaStream>) -> Result<(), String> {
        stream.memcpy_htod(&self.guarded.fill(), &mut self.c).map_err(text)
    }
}

/// M rows, shared out among the groups, if there are any.
fn rows(problem: &Problem, m: u32, random: &mut fastrand::Rng) -> Vec<u32> {
    let groups = problem.groups().unwrap_or(1);
    let mut ends: Vec<u32> = (1..groups).map(|_| random.u32(0..=m)).chain([0, m]).collect();
    ends.sort_unstable();
    ends.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// Unloads what was dropped; how many modules that were. Nothing runs, but the driver may need a moment to see it.
fn reclaimed(device: &Device) -> Result<usize, String> {
    let mut unloaded = 0;
    for _ in 0..1000 {
        unloaded += device.reclaim().map_err(text)?;
        if device.retired() == 0 {
            return Ok(unloaded);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(format!("{} modules of dropped kernels are still loaded on an idle device", device.retired()))
}

/// Random M against the reference, launched plainly and dependently, with NaN behind every row that counts.
pub fn is_right_for_every_m(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    let engine = engine(&bench.device);
    let mut random = fastrand::Rng::with_seed(7);
    for problem in problems() {
        let plan = engine.plan(&problem).map_err(text)?;
        let borders = plan.intervals().flat_map(|(interval, _)| [interval.first, interval.last]);
        let some: Vec<u32> = borders.chain((0..8).map(|_| random.u32(1..=M))).collect();
        for (index, m) in some.into_iter().enumerate() {
            let mut case = Case::new(&bench.stream, &plan, &rows(&problem, m, &mut random), index as u64)?;
            for is_dependent in [false, true] {
                case.clear(&bench.stream)?;
                case.launch(&bench.stream, &plan, is_dependent)?;
                let what = format!("{problem}, m = {m}, {}", plan.kernel(m).map_err(text)?.spec().variant());
                case.judge(&case.found(&bench.stream)?, &what)?;
            }
        }
    }
    Ok(())
}

/// Plans bound to operands, launched with these from another thread and with others from this one: with NaN behind every
/// row that counts, as above.
pub fn is_right_when_bound(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    let (engine, stream) = (engine(&bench.device), &bench.stream);
    let mut random = fastrand::Rng::with_seed(8);
    for problem in problems() {
        let plan = engine.plan(&problem).map_err(text)?;
        for m in [M, 1, random.u32(1..=M)] {
            let rows = rows(&problem, m, &mut random);
            let mut case = Case::new(stream, &plan, &rows, 8)?;
            let mut elsewhere = Case::new(stream, &plan, &rows, 9)?;
            let bound = case.with_operands(|operands| plan.bind(stream, &operands))?;
            let launch = |case: &mut Case, what: &str| {
                case.clear(stream)?;
                case.with_operands(|operands| bound.launch_dependent(stream, operands))?;
                case.judge(&case.found(stream)?, &format!("{problem}, m = {m}, {what}"))
            };
            std::thread::scope(|scope| scope.spawn(|| launch(&mut case, "where it is bound to")).join())
                .map_err(|_| "a thread panicked".to_owned())??;
            launch(&mut elsewhere, "elsewhere")?;
        }
    }
    Ok(())
}

/// One capture, replayed with other sizes of groups, after everything that made it is gone but the graph.
pub fn is_outlived_by_its_graph(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    let (stream, mode) = (&bench.stream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    reclaimed(&bench.device)?;
    let problem = dual().grouped(4);
    let engine = engine(&bench.device);
    let plan = engine.plan(&problem).map_err(text)?;
    let mut case = Case::new(stream, &plan, &[100, 100, 100, 100], 3)?;
    wait(stream, WAIT).map_err(text)?;
    let graph = captured(stream, mode, || case.launch(stream, &plan, false))?;

    // Evicted: nobody holds a kernel of the engine any more, and what nothing uses is unloaded: at least those of a plan
    // that the graph knows nothing of.
    let idle = engine.plan(&dual()).map_err(text)?;
    drop((plan, idle, engine));
    wait(stream, WAIT).map_err(text)?;
    let (retired, unloaded) = (bench.device.retired(), reclaimed(&bench.device)?);
    if retired == 0 || unloaded != retired {
        return Err(format!("{unloaded} modules were unloaded, {retired} retired"));
    }
    for ends in [[0, 100, 200, 300, 400], [0, 400, 400, 400, 400], [0, 0, 1, 18, 400], [0, 133, 133, 266, 400]] {
        let offsets = case.offsets.as_mut().ok_or("no offsets")?;
        stream.memcpy_htod(&ends, offsets).map_err(text)?;
        case.clear(stream)?;
        graph.launch().map_err(text)?;
        let found = case.found(stream)?;
        case.host.offsets = Some(ends.to_vec());
        case.judge(&found, &format!("replayed with {ends:?}"))?;
    }
    drop(graph);
    // The driver gives back what the graph held when it comes to it.
    for _ in 0..100 {
        if bench.device.retired() > 0 {
            return reclaimed(&bench.device).map(drop);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err("the graph is gone, and still holds its kernel".to_owned())
}

/// Kernels are dropped while thousands of their launches wait in the stream, and reclaimed at once: all results are there.
pub fn is_dropped_while_it_runs(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    let stream = &bench.stream;
    let engine = engine(&bench.device);
    let plan = engine.plan(&dual()).map_err(text)?;
    let mut case = Case::new(stream, &plan, &[M], 5)?;
    case.launch(stream, &plan, false)?;
    let first = case.found(stream)?;
    case.judge(&first, "alone")?;
    case.clear(stream)?;
    (0..2000).try_for_each(|_| case.launch(stream, &plan, true))?;
    drop((plan, engine));
    bench.device.reclaim().map_err(text)?;
    if case.found(stream)? != first {
        return Err("other bits after the kernel was dropped".to_owned());
    }
    reclaimed(&bench.device).map(drop)
}

/// Kernels are loaded while a stream is being captured in the strictest mode, by the same thread and by another: neither
/// the loads nor the capture are lost.
pub fn loads_beside_captures(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    let (stream, mode) = (&bench.stream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL);
    let engine = engine(&bench.device);
    let plan = engine.plan(&dual().m_up_to(8)).map_err(text)?;
    let mut case = Case::new(stream, &plan, &[8], 11)?;
    wait(stream, WAIT).map_err(text)?;
    let graph = captured(stream, mode, || {
        std::thread::scope(|scope| scope.spawn(|| engine.plan(&dual().n(288).m_up_to(8)).map_err(text)).join())
            .map_err(|_| "a thread panicked".to_owned())??;
        engine.plan(&dual().n(304).m_up_to(8)).map_err(text)?;
        case.launch(stream, &plan, false)
    })?;
    graph.launch().map_err(text)?;
    case.judge(&case.found(stream)?, "captured while kernels were loaded")
}

/// Dropped kernels wait while a stream is being captured that is named, or that waits for the default stream; neither
/// capture is lost.
pub fn reclaims_nothing_during_a_capture(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    let (stream, mode) = (&bench.stream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    let engine = engine(&bench.device);
    let plan = engine.plan(&dual().m_up_to(8)).map_err(text)?;
    let mut case = Case::new(stream, &plan, &[8], 11)?;
    wait(stream, WAIT).map_err(text)?;
    let refused = |reclaimed: warpsmith::Result<usize>| match reclaimed {
        Err(error) if error.is_operand() => Ok(()),
        other => Err(format!("{other:?} during a capture")),
    };
    let graph = captured(stream, mode, || {
        refused(bench.device.reclaim_beside(&[stream]))?;
        case.launch(stream, &plan, false)
    })?;
    graph.launch().map_err(text)?;
    case.judge(&case.found(stream)?, "captured beside a reclaim")?;

    let (mut waiting, mut empty) = (std::ptr::null_mut(), std::ptr::null_mut());
    bench.device.context().bind_to_thread().map_err(text)?;
    // SAFETY: both are places for a handle, and the stream is alive.
    unsafe {
        sys::cuStreamCreate(&raw mut waiting, 0).result().map_err(text)?;
        sys::cuStreamBeginCapture_v2(waiting, mode).result().map_err(text)?;
        let during = refused(bench.device.reclaim());
        sys::cuStreamEndCapture(waiting, &raw mut empty).result().map_err(text)?;
        sys::cuGraphDestroy(empty).result().map_err(text)?;
        sys::cuStreamDestroy_v2(waiting).result().map_err(text)?;
        during?;
    }
    drop((plan, engine));
    reclaimed(&bench.device).map(drop)
}

/// Eight threads, each with its own stream and operands, launch one plan with M that change.
pub fn is_shared_by_threads(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    for problem in [dual(), dual().grouped(5)] {
        let plan = engine(&bench.device).plan(&problem).map_err(text)?;
        let run = |thread: u64| -> Result<(), String> {
            let stream = bench.device.context().new_stream().map_err(text)?;
            let mut random = fastrand::Rng::with_seed(thread);
            let mut cases = (0..6)
                .map(|index| {
                    let m = random.u32(1..=M);
                    Case::new(&stream, &plan, &rows(&problem, m, &mut random), 8 * thread + index)
                })
                .collect::<Result<Vec<_>, _>>()?;
            for _ in 0..200 {
                let case = random.usize(..cases.len());
                cases[case].launch(&stream, &plan, random.bool())?;
            }
            for case in &mut cases {
                case.launch(&stream, &plan, false)?;
                case.judge(&case.found(&stream)?, &format!("thread {thread}, m = {}", case.host.m))?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|thread| scope.spawn(move || run(thread))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
        })?;
    }
    Ok(())
}

/// An engine on each of two devices, from one cache: one compile a kernel, right results from both at the same time.
pub fn is_right_on_two_devices(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    let cache = Arc::new(KernelCache::builder().install_if_missing().no_disk().build());
    let problem = dual();
    let plan_on = |ordinal: usize| {
        let device = Device::open(ordinal).map_err(text)?;
        // SAFETY: the stream below is the only one of this context that is used meanwhile.
        unsafe { device.context().disable_event_tracking() };
        let stream = device.context().new_stream().map_err(text)?;
        let engine = Engine::with_cache(&device, Arc::clone(&cache));
        let plan = engine.plan(&problem).map_err(text)?;
        Ok::<_, String>((plan, stream, device))
    };
    let (first, second) = (plan_on(0)?, plan_on(1)?);
    let mut specs: Vec<_> = first.0.intervals().map(|(_, kernel)| *kernel.spec()).collect();
    specs.dedup();
    let compiles = cache.stats().compiles;
    let distinct = specs.iter().collect::<std::collections::HashSet<_>>().len() as u64;
    if compiles != distinct {
        return Err(format!("{compiles} compiles for {distinct} kernels on two devices"));
    }
    std::thread::scope(|scope| {
        let run = |(plan, stream, _device): (Plan, Arc<CudaStream>, Device)| -> Result<(), String> {
            let mut random = fastrand::Rng::with_seed(1);
            for index in 0..20 {
                let mut case = Case::new(&stream, &plan, &[random.u32(1..=M)], index)?;
                case.launch(&stream, &plan, false)?;
                case.judge(&case.found(&stream)?, &format!("m = {}", case.host.m))?;
            }
            Ok(())
        };
        let threads = [first, second].map(|on| scope.spawn(move || run(on)));
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked".to_owned())?)
    })
}
