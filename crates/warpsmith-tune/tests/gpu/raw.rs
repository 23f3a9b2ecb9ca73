//! Memory and streams that somebody else manages, on a GPU: another cudarc, and bare handles, eagerly and in a graph.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::DevicePtr;
use cudarc::driver::sys::{self, CUstreamCaptureMode};
use cudarc_other::driver::DevicePtr as _;
use half::f16;
use warpsmith::cache::KernelCache;
use warpsmith::engine::{Engine, Plan};
use warpsmith::format::Format;
use warpsmith::run::{Device, Matrix, Memory, MemoryMut, Operands, OwnedMemory, Owner, RawStream, Weights, Workspace};
use warpsmith::spec::{Activation, Problem};
use warpsmith_tune::gate::Guarded;
use warpsmith_tune::{HostMatrix, HostOperands, Spread, wait};

use crate::bench::{Bench, text};

const WAIT: Duration = Duration::from_secs(10);
/// Rows of a call.
const M: u32 = 17;
/// What a launch over raw memory may cost more than one over cudarc's, in nanoseconds.
const MORE_NS: f64 = 30.0;
/// The same, if its owner is made for it, allocated and dropped.
const MORE_WITH_NEW_OWNER_NS: f64 = 200.0;

type CodesAndScales<'a> = (&'a [u8], &'a [u8]);

/// A small MLP's first half, with what is expected of it.
struct Case {
    engine: Engine,
    problem: Problem,
    plan: Plan,
    host: HostOperands,
    guarded: Guarded,
}

impl Case {
    fn new(device: &Device) -> Result<Self, String> {
        let engine = Engine::with_cache(device, KernelCache::builder().install_if_missing().no_disk().build());
        let problem = engine.native(&Problem::dual_gemm(Activation::Silu).n(272).k(448).m_up_to(64));
        let plan = engine.plan(&problem).map_err(text)?;
        let mut host = HostOperands::random(&problem, &[M], Spread::Every, 11);
        host.alpha = vec![vec![0.01], vec![0.02]];
        let guarded = Guarded::new(M as usize, problem.columns() as usize, Format::F16).map_err(text)?;
        Ok(Self { engine, problem, plan, host, guarded })
    }

    fn a(&self) -> Result<&[f16], String> {
        if let HostMatrix::F16(a) = &self.host.a { Ok(a) } else { Err("A is not f16".to_owned()) }
    }

    fn b(&self) -> Result<[CodesAndScales<'_>; 2], String> {
        match &self.host.b[..] {
            [HostMatrix::Nvfp4 { codes: b1, scales: s1 }, HostMatrix::Nvfp4 { codes: b2, scales: s2 }] => {
                Ok([(b1, s1), (b2, s2)])
            }
            _ => Err("B is not nvfp4".to_owned()),
        }
    }

    /// Launches over these addresses: A, C with its guards, and a workspace.
    fn launch(
        &self,
        stream: &RawStream,
        weights: &Weights<'_>,
        [a, c, room]: [u64; 3],
        owner: Option<&Owner>,
    ) -> Result<(), String> {
        let range = self.guarded.result();
        // SAFETY: live memory of the device, which the stream orders.
        let operands = unsafe {
            let a = Memory::<f16>::from_raw(a, self.a()?.len());
            let a = match owner {
                Some(owner) => a.owner(owner),
                None => a,
            };
            let c = MemoryMut::<f16>::from_raw(c + range.start as u64, range.len() / 2);
            let room = MemoryMut::from_raw(room, self.room());
            Operands::new(M, a, weights, c).alphas(0.01, 0.02).workspace(room)
        };
        self.plan.launch(stream, operands).map_err(text)
    }

    fn room(&self) -> usize {
        self.plan.workspace_bytes(M).max(16) as usize
    }

    fn judge(&self, found: &[u8]) -> Result<(), String> {
        let reference = warpsmith_tune::reference::of(&self.host).map_err(text)?;
        let verdict = self.guarded.judge(found, &reference).map_err(text)?;
        if verdict.passed() { Ok(()) } else { Err(format!("{}: {verdict}", self.problem)) }
    }
}

/// An engine on another cudarc: its context, its stream, its memory, and its graph.
pub fn another_cudarc_is_served(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    let context = cudarc_other::driver::CudaContext::new(bench.device.ordinal()).map_err(text)?;
    // SAFETY: everything of this test is in one stream.
    unsafe { context.disable_event_tracking() };
    let stream = context.new_stream().map_err(text)?;
    // SAFETY: a context and a stream of the device, which the owners keep.
    let (device, raw) = unsafe {
        let device =
            Device::from_raw(bench.device.ordinal(), context.cu_ctx().cast(), Some(context.clone())).map_err(text)?;
        let raw = device.raw_stream(stream.cu_stream().cast(), Some(stream.clone())).map_err(text)?;
        (device, raw)
    };
    let case = Case::new(&device)?;
    let upload = |bytes: &[u8]| stream.clone_htod(bytes).map_err(text);
    let mut b = Vec::new();
    for (codes, scales) in case.b()? {
        let pair = Arc::new((upload(codes)?, upload(scales)?));
        let owner: Owner = pair.clone();
        // SAFETY: the owners keep the memory, and the stream orders it.
        let memory = |slice: &cudarc_other::driver::CudaSlice<u8>| unsafe {
            OwnedMemory::from_raw(&device, slice.device_ptr(&stream).0, slice.len(), Some(owner.clone()))
        };
        b.push((memory(&pair.0), memory(&pair.1)));
    }
    let weights = case.engine.weights(raw.cudarc(), &case.problem, b).map_err(text)?;
    let a = Arc::new(stream.clone_htod(case.a()?).map_err(text)?);
    let mut c = stream.clone_htod(&case.guarded.fill()).map_err(text)?;
    let room = stream.alloc_zeros::<u8>(case.room()).map_err(text)?;
    let addresses = [a.device_ptr(&stream).0, c.device_ptr(&stream).0, room.device_ptr(&stream).0];
    let owner: Owner = a.clone();
    // Past where owners are dropped.
    (0..200).try_for_each(|_| case.launch(&raw, &weights, addresses, Some(&owner)))?;
    stream.synchronize().map_err(text)?;
    case.judge(&stream.clone_dtoh(&c).map_err(text)?)?;
    if raw.release().map_err(text)? != 0 || Arc::strong_count(&a) != 2 {
        return Err(format!("{} owners are held of launches that have run", Arc::strong_count(&a) - 2));
    }

    stream
        .begin_capture(cudarc_other::driver::sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)
        .map_err(text)?;
    let launched = case.launch(&raw, &weights, addresses, Some(&owner));
    let flags = cudarc_other::driver::sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags).map_err(text)?.ok_or("no graph")?;
    launched?;
    stream.memcpy_htod(&case.guarded.fill(), &mut c).map_err(text)?;
    // The graph holds the weights.
    drop(weights);
    (0..3).try_for_each(|_| graph.launch().map_err(text))?;
    stream.synchronize().map_err(text)?;
    case.judge(&stream.clone_dtoh(&c).map_err(text)?)?;
    drop((graph, owner));
    device.reclaim().map_err(text)?;
    // What a graph held is given back on a thread of the driver's, soon.
    let start = Instant::now();
    while Arc::strong_count(&a) > 1 && start.elapsed() < WAIT {
        device.reclaim().map_err(text)?;
    }
    if Arc::strong_count(&a) == 1 { Ok(()) } else { Err("an owner outlives its graph".to_owned()) }
}

/// What a C program has: a context, a stream and addresses.
pub fn bare_handles_are_served(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    let (mut context, mut handle, mut ordinal) = (ptr::null_mut(), ptr::null_mut(), 0);
    // SAFETY: valid places for what is asked for.
    unsafe {
        sys::cuDeviceGet(&raw mut ordinal, bench.device.ordinal() as i32).result().map_err(text)?;
        sys::cuDevicePrimaryCtxRetain(&raw mut context, ordinal).result().map_err(text)?;
        sys::cuCtxSetCurrent(context).result().map_err(text)?;
        sys::cuStreamCreate(&raw mut handle, 1).result().map_err(text)?;
    }
    let memory = |bytes: &[u8]| -> Result<u64, String> {
        let mut address = 0;
        // SAFETY: a valid place for an address, and as many bytes as are copied.
        unsafe {
            sys::cuMemAllocAsync(&raw mut address, bytes.len(), handle).result().map_err(text)?;
            sys::cuMemcpyHtoDAsync_v2(address, bytes.as_ptr().cast::<c_void>(), bytes.len(), handle)
                .result()
                .map_err(text)?;
        }
        Ok(address)
    };
    // SAFETY: the primary context, and a stream of it that is never destroyed.
    let (device, stream) = unsafe {
        let device = Device::from_raw(bench.device.ordinal(), context.cast(), None).map_err(text)?;
        let stream = device.raw_stream(handle.cast(), None).map_err(text)?;
        (device, stream)
    };
    let case = Case::new(&device)?;
    let mut b = Vec::new();
    for (codes, scales) in case.b()? {
        // SAFETY: live memory, ordered by the stream.
        b.push(unsafe {
            let matrix = [memory(codes)?, memory(scales)?];
            Matrix::nvfp4(Memory::from_raw(matrix[0], codes.len()), Memory::from_raw(matrix[1], scales.len()))
        });
    }
    let weights = case.engine.weights(stream.cudarc(), &case.problem, b).map_err(text)?;
    let fill = case.guarded.fill();
    // SAFETY: f16 values as bytes.
    let a = unsafe { std::slice::from_raw_parts(case.a()?.as_ptr().cast::<u8>(), 2 * case.a()?.len()) };
    let addresses = [memory(a)?, memory(&fill)?, memory(&vec![0xff; case.room()])?];
    let found = || -> Result<Vec<u8>, String> {
        let mut bytes = vec![0u8; fill.len()];
        // SAFETY: as many bytes as were allocated.
        unsafe {
            sys::cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), addresses[1], bytes.len(), handle)
                .result()
                .map_err(text)?;
            sys::cuStreamSynchronize(handle).result().map_err(text)?;
        }
        Ok(bytes)
    };
    case.launch(&stream, &weights, addresses, None)?;
    let eager = found()?;
    case.judge(&eager)?;

    // SAFETY: a graph of the stream, launched there.
    let replayed = unsafe {
        sys::cuMemcpyHtoDAsync_v2(addresses[1], fill.as_ptr().cast(), fill.len(), handle).result().map_err(text)?;
        let (mut graph, mut executable) = (ptr::null_mut(), ptr::null_mut());
        sys::cuStreamBeginCapture_v2(handle, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL)
            .result()
            .map_err(text)?;
        let launched = case.launch(&stream, &weights, addresses, None);
        sys::cuStreamEndCapture(handle, &raw mut graph).result().map_err(text)?;
        launched?;
        sys::cuGraphInstantiateWithFlags(&raw mut executable, graph, 0).result().map_err(text)?;
        sys::cuGraphLaunch(executable, handle).result().map_err(text)?;
        let replayed = found()?;
        sys::cuGraphExecDestroy(executable).result().map_err(text)?;
        sys::cuGraphDestroy(graph).result().map_err(text)?;
        replayed
    };
    if replayed == eager { Ok(()) } else { Err("a replay gives other bits than the eager launch".to_owned()) }
}

/// Nanoseconds a launch takes: in batches of 20, all of which finish before the next begins.
fn batch(bench: &Bench, mut call: impl FnMut() -> Result<(), String>) -> Result<f64, String> {
    let start = Instant::now();
    (0..20).try_for_each(|_| call())?;
    let took = start.elapsed().as_secs_f64() * 1e9 / 20.0;
    wait(&bench.stream, WAIT).map_err(text)?;
    Ok(took)
}

/// A launch over raw memory, without an owner, with the same and with a new one each time, beside one over cudarc's: batches
/// in turn, medians of thousands; the least difference of three rounds counts.
pub fn cost_no_more(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    let case = Case::new(&bench.device)?;
    let stream = &bench.stream;
    // SAFETY: a stream of the device's context, which the owner keeps.
    let raw = unsafe { bench.device.raw_stream(stream.cu_stream().cast(), Some(stream.clone())) }.map_err(text)?;
    let b = case.b()?.map(|(codes, scales)| (stream.clone_htod(codes).unwrap(), stream.clone_htod(scales).unwrap()));
    let weights = case.engine.weights(stream, &case.problem, b).map_err(text)?;
    let a = stream.clone_htod(case.a()?).map_err(text)?;
    let mut c = stream.clone_htod(&case.guarded.fill()).map_err(text)?;
    let mut room = Workspace::of_bytes(stream, case.room() as u64).map_err(text)?;
    let other = stream.alloc_zeros::<u8>(case.room()).map_err(text)?;
    let addresses = [a.device_ptr(stream).0, c.device_ptr(stream).0, other.device_ptr(stream).0];
    let owner: Owner = Arc::new(());
    let mut rounds = Vec::new();
    for _ in 0..3 {
        let mut times: [Vec<f64>; 4] = Default::default();
        for _ in 0..2000 {
            times[0].push(batch(bench, || {
                let mut view = c.slice_mut(case.guarded.result());
                let c = warpsmith::run::MatrixMut::from_bytes(Format::F16, &mut view).map_err(text)?;
                let operands = Operands::new(M, &a, &weights, c).alphas(0.01, 0.02).workspace(&mut room);
                case.plan.launch(stream, operands).map_err(text)
            })?);
            times[1].push(batch(bench, || case.launch(&raw, &weights, addresses, None))?);
            times[2].push(batch(bench, || case.launch(&raw, &weights, addresses, Some(&owner)))?);
            times[3].push(batch(bench, || {
                let owner: Owner = Arc::new([0_u8; 16]);
                case.launch(&raw, &weights, addresses, Some(&owner))
            })?);
        }
        rounds.push(times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        }));
    }
    let least = |which: usize| rounds.iter().map(|round| round[which] - round[0]).fold(f64::INFINITY, f64::min);
    println!("raw door, ns a launch: typed, raw, with an owner, with a new owner, in turn {rounds:.0?}");
    match least(1).max(least(2)) <= MORE_NS && least(3) <= MORE_WITH_NEW_OWNER_NS {
        true => Ok(()),
        false => {
            Err(format!("raw memory costs {:.0} ns more, with owners {:.0} and {:.0}", least(1), least(2), least(3)))
        }
    }
}

/// With cudarc's event tracking on: streams that share weights get the same bits as one alone, and may drop them.
pub fn streams_share_weights(bench: &Bench) -> Result<(), String> {
    let _turn = bench.alone();
    let context = cudarc::driver::CudaContext::new(bench.device.ordinal()).map_err(text)?;
    let device = Device::of_context(&context).map_err(text)?;
    let case = Case::new(&device)?;
    let streams = (0..4).map(|_| context.new_stream().map_err(text)).collect::<Result<Vec<_>, _>>()?;
    let upload = |bytes: &[u8]| streams[0].clone_htod(bytes).map_err(text);
    for _ in 0..20 {
        let [(gate, gate_scales), (up, up_scales)] = case.b()?;
        let b = [(upload(gate)?, upload(gate_scales)?), (upload(up)?, upload(up_scales)?)];
        let weights = case.engine.weights(&streams[0], &case.problem, b).map_err(text)?;
        let mut results = Vec::new();
        for stream in &streams {
            let a = stream.clone_htod(case.a()?).map_err(text)?;
            let mut c = stream.clone_htod(&case.guarded.fill()).map_err(text)?;
            let mut room = case.plan.workspace(stream, M).map_err(text)?;
            for is_dependent in [false, true] {
                let mut view = c.slice_mut(case.guarded.result());
                let c = warpsmith::run::MatrixMut::from_bytes(Format::F16, &mut view).map_err(text)?;
                let operands = Operands::new(M, &a, &weights, c).alphas(0.01, 0.02).workspace(&mut room);
                match is_dependent {
                    false => case.plan.launch(stream, operands).map_err(text)?,
                    true => case.plan.launch_dependent(stream, operands).map_err(text)?,
                }
            }
            results.push(c);
        }
        drop(weights);
        // In the place where they lay.
        let other = streams[0].alloc_zeros::<u8>(1 << 20).map_err(text)?;
        for (stream, c) in streams.iter().zip(&results) {
            case.judge(&stream.clone_dtoh(c).map_err(text)?)?;
        }
        drop(other);
    }
    Ok(())
}
