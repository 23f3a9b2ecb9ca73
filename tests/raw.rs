//! Memory, streams and contexts that somebody else manages: another cudarc, and a program that has bare handles. The driver
//! is one without a device that tells which uses of memory no stream orders.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use warpsmith_testing as common;

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys::{self, CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc_other::driver::DevicePtr as _;
use half::f16;
use warpsmith::cache::KernelCache;
use warpsmith::engine::{Engine, Plan};
use warpsmith::format::Format;
use warpsmith::pick::Choice;
use warpsmith::run::{
    Device, Matrix, Memory, MemoryMut, Operands, OwnedMemory, Owner, PreparedWeights, RawStream, Weights,
};
use warpsmith::spec::{Activation, Problem};

use common::null::Null;

const M: u32 = 16;
const N: usize = 1024;
const K: usize = 512;

/// Where tests take turns with the null driver.
fn null() -> (&'static Null, MutexGuard<'static, ()>) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let null = Null::driver();
    null.busy(false);
    null.track(true);
    (null, turn)
}

/// Two groups, whose launches have every operand that there is.
fn grouped() -> Problem {
    Problem::dual_gemm(Activation::Silu).n(N as u32).k(K as u32).a(Format::Nvfp4).grouped(2).m_up_to(M)
}

fn plan(device: &Device) -> (Engine, Problem, Plan) {
    let cubins = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("raw");
    let install = std::env::var_os("WARPSMITH_TEST_INSTALL").is_some();
    let cache = KernelCache::builder().disk(cubins);
    let engine = Engine::with_cache(device, if install { cache.install_if_missing().build() } else { cache.build() });
    let problem = engine.native(&Problem::dual_gemm(Activation::Silu).n(N as u32).k(K as u32).m_up_to(M));
    let plan = engine.plan(&problem).unwrap();
    (engine, problem, plan)
}

/// Counts how many of its clones' last holders are gone.
struct Held(Arc<AtomicUsize>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Memory that is freed at once when its last holder is gone, whatever may still be using it.
struct Freed(u64);

impl Freed {
    /// An address, and what keeps it.
    fn allocated(bytes: usize) -> (u64, Owner) {
        let mut address = 0;
        // SAFETY: a valid place for an address.
        unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes).result().unwrap() };
        (address, Arc::new(Self(address)))
    }
}

impl Drop for Freed {
    fn drop(&mut self) {
        // SAFETY: it was allocated; the null driver tells whether it is in use.
        unsafe { sys::cuMemFree_v2(self.0).result().unwrap() };
    }
}

/// Notes how many modules are loaded when it goes.
struct Last(&'static Null, Arc<AtomicI32>);

impl Drop for Last {
    fn drop(&mut self) {
        self.1.store(self.0.loaded() - self.0.unloaded(), SeqCst);
    }
}

/// Every operand that there is, all at one address, with owners.
///
/// # Safety
/// As for [`Memory::from_raw`].
unsafe fn owned<'a>(address: u64, owners: &'a [Owner; 11]) -> Operands<'a> {
    let [a, a_scales, b1, b1_scales, b2, b2_scales, alpha1, alpha2, offsets, c, workspace] = owners;
    // SAFETY: the caller's promise.
    unsafe {
        let bytes = |bytes, owner: &'a Owner| Memory::<u8>::from_raw(address, bytes).owner(owner);
        let pair = |rows: usize, codes, scales| Matrix::nvfp4(bytes(rows * K / 2, codes), bytes(rows * K / 16, scales));
        let alpha = |owner: &'a Owner| Memory::<f32>::from_raw(address, 2).owner(owner);
        let c = MemoryMut::<f16>::from_raw(address, M as usize * N).owner(c);
        let (b1, b2) = (pair(2 * N, b1, b1_scales), pair(2 * N, b2, b2_scales));
        Operands::dual_gemm(M, pair(M as usize, a, a_scales), b1, b2, c)
            .alphas(alpha(alpha1), alpha(alpha2))
            .offsets(Memory::from_raw(address, 3).owner(offsets))
            .workspace(MemoryMut::from_raw(address, 2 * N * K).owner(workspace))
    }
}

/// An engine on another cudarc: its context, stream, tokens, weights and results.
#[test]
fn another_cudarc_launches_over_its_own_memory_and_stream() {
    let (null, _turn) = null();
    let context = cudarc_other::driver::CudaContext::new(0).unwrap();
    // SAFETY: everything is in one stream.
    unsafe { context.disable_event_tracking() };
    let stream = context.new_stream().unwrap();
    let owner: Owner = stream.clone();
    // SAFETY: a context and a stream of device 0, which the owners keep.
    let (device, raw) = unsafe {
        let device = Device::from_raw(0, context.cu_ctx().cast(), Some(context.clone())).unwrap();
        let raw = device.raw_stream(stream.cu_stream().cast(), Some(owner)).unwrap();
        (device, raw)
    };
    let (engine, problem, plan) = plan(&device);
    let codes = || stream.alloc_zeros::<u8>(N * K / 2).unwrap();
    let scales = || stream.alloc_zeros::<u8>(N * K / 16).unwrap();
    let given = [(codes(), scales()), (codes(), scales())].map(Arc::new);
    let address = |slice: &cudarc_other::driver::CudaSlice<u8>| slice.device_ptr(&stream).0;
    let b = given.each_ref().map(|pair| {
        let owner: Owner = pair.clone();
        // SAFETY: the owners keep the memory, and the stream orders it.
        unsafe {
            let codes = OwnedMemory::from_raw(&device, address(&pair.0), N * K / 2, Some(owner.clone()));
            (codes, OwnedMemory::from_raw(&device, address(&pair.1), N * K / 16, Some(owner)))
        }
    });
    null.busy(true);
    let weights = engine.weights(raw.cudarc(), &problem, b).unwrap();
    assert!(
        given.iter().all(|pair| Arc::strong_count(pair) == 3),
        "what they are repacked from is kept until that is done"
    );
    null.busy(false);
    device.reclaim().unwrap();
    assert!(given.iter().all(|pair| Arc::strong_count(pair) == 1));

    let a = Arc::new(stream.alloc_zeros::<f16>(M as usize * K).unwrap());
    let c = stream.alloc_zeros::<f16>(M as usize * N).unwrap();
    let workspace = stream.alloc_zeros::<u8>(plan.workspace_bytes(M).max(16) as usize).unwrap();
    let launch = |m: u32| {
        let owner: Owner = a.clone();
        // SAFETY: the owner keeps A; the others live to the end of the test, and the stream orders all.
        let operands = unsafe {
            let a = Memory::<f16>::from_raw(a.device_ptr(&stream).0, a.len()).owner(&owner);
            let c = MemoryMut::<f16>::from_raw(c.device_ptr(&stream).0, c.len());
            let workspace = MemoryMut::from_raw(workspace.device_ptr(&stream).0, workspace.len());
            Operands::new(m, a, &weights, c).workspace(workspace)
        };
        plan.launch(&raw, operands).unwrap();
    };
    null.watch(true);
    launch(M);
    assert_eq!(null.seen().param(0), a.device_ptr(&stream).0);
    null.watch(false);
    // Nothing is made on the way: no event, no memory.
    let (events, allocations) = (null.events(), null.allocations());
    (1..=300).for_each(|turn| launch(1 + turn % M));
    assert_eq!((null.events(), null.allocations()), (events, allocations));
    assert!(Arc::strong_count(&a) < 2 + 2 * 64, "{}", Arc::strong_count(&a));
    assert_eq!(raw.release().unwrap(), 0);
    assert_eq!(Arc::strong_count(&a), 1);
    drop((weights, plan, engine));
    assert_eq!(null.races(), (0, String::new()));
}

/// What a C program has: a context, a stream and addresses.
struct Bare {
    context: sys::CUcontext,
    stream: sys::CUstream,
}

impl Bare {
    fn new() -> Self {
        let (mut context, mut stream) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: valid places for what is asked for.
        unsafe {
            sys::cuInit(0).result().unwrap();
            sys::cuDevicePrimaryCtxRetain(&raw mut context, 0).result().unwrap();
            sys::cuCtxSetCurrent(context).result().unwrap();
            sys::cuStreamCreate(&raw mut stream, 1).result().unwrap();
        }
        Self { context, stream }
    }

    fn memory(&self, bytes: usize) -> u64 {
        let mut address = 0;
        // SAFETY: a valid place for an address.
        unsafe { sys::cuMemAllocAsync(&raw mut address, bytes, self.stream).result().unwrap() };
        address
    }

    fn free(&self, addresses: &[u64]) {
        for address in addresses {
            // SAFETY: it was allocated, and what uses it is before this in the stream.
            unsafe { sys::cuMemFreeAsync(*address, self.stream).result().unwrap() };
        }
    }

    fn device(&self) -> Device {
        // SAFETY: the primary context, which is never given back.
        unsafe { Device::from_raw(0, self.context.cast(), None).unwrap() }
    }

    fn stream(&self, device: &Device) -> RawStream {
        // SAFETY: a stream of the context, which is never destroyed.
        unsafe { device.raw_stream(self.stream.cast::<c_void>(), None).unwrap() }
    }
}

/// Bare handles, eager and captured; weights that were prepared before lie in the caller's memory.
#[test]
fn bare_handles_launch_eagerly_and_in_a_graph() {
    let (null, _turn) = null();
    let bare = Bare::new();
    let device = bare.device();
    let stream = bare.stream(&device);
    let (engine, problem, plan) = plan(&device);
    let layout = problem.prepared_layout().unwrap();
    let bytes = engine.weights_bytes(&problem).unwrap() as usize;
    let [adopted, room, codes, scales] = [bytes, bytes, N * K / 2, N * K / 16].map(|bytes| bare.memory(bytes));
    // SAFETY: live memory of the device, ordered by the stream.
    let (adopted_weights, weights) = unsafe {
        let memory = OwnedMemory::from_raw(&device, adopted, bytes, None);
        let b = || Matrix::nvfp4(Memory::from_raw(codes, N * K / 2), Memory::from_raw(scales, N * K / 16));
        let into = OwnedMemory::from_raw(&device, room, bytes, None);
        let prepared = engine.weights_into(stream.cudarc(), &problem, [b(), b()], into).unwrap();
        (PreparedWeights::from_device(&stream, layout, memory).unwrap(), prepared)
    };
    let [a, c, workspace] = [M as usize * K * 2, M as usize * N * 2, plan.workspace_bytes(M).max(16) as usize]
        .map(|bytes| bare.memory(bytes));
    // SAFETY: as above.
    let operands = |m: u32, weights| unsafe {
        let (a, c) = (Memory::<f16>::from_raw(a, M as usize * K), MemoryMut::<f16>::from_raw(c, M as usize * N));
        let workspace = MemoryMut::from_raw(workspace, plan.workspace_bytes(M).max(16) as usize);
        match weights {
            Some(weights) => Operands::new(m, a, weights, c),
            None => Operands::prepared(m, a, &adopted_weights, c),
        }
        .workspace(workspace)
    };
    for m in [0, 1, M] {
        plan.launch(&stream, operands(m, Some(&weights))).unwrap();
        plan.launch_dependent(&stream, operands(m, None)).unwrap();
    }

    // An owner that a graph keeps, also after the stream's wrapper is gone.
    let count = Arc::new(AtomicUsize::new(0));
    let owner: Owner = Arc::new(Held(Arc::clone(&count)));
    let captured = stream.cudarc();
    captured.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
    // SAFETY: as above.
    let a = unsafe { Memory::<f16>::from_raw(a, M as usize * K).owner(&owner) };
    // SAFETY: as above.
    let c_again = unsafe { MemoryMut::<f16>::from_raw(c, M as usize * N) };
    // SAFETY: as above.
    let room_again = unsafe { MemoryMut::from_raw(workspace, plan.workspace_bytes(M).max(16) as usize) };
    plan.launch(&stream, Operands::new(M, a, &weights, c_again).workspace(room_again)).unwrap();
    assert_eq!(Arc::strong_count(&owner), 2, "the graph holds it, and no event will stand for it");
    assert!(stream.release().unwrap_err().to_string().contains("being captured"));
    let graph = captured.end_capture(CUgraphInstantiate_flags(0)).unwrap().unwrap();
    graph.launch().unwrap();
    drop((stream, plan, engine, owner));
    device.reclaim().unwrap();
    assert_eq!(count.load(SeqCst), 0);
    drop(graph);
    assert_eq!(count.load(SeqCst), 0, "not on a thread of the driver's");
    device.reclaim().unwrap();
    assert_eq!(count.load(SeqCst), 1);
    drop((weights, adopted_weights));
    bare.free(&[adopted, room, codes, scales, c, workspace]);
    assert_eq!(null.races(), (0, String::new()));
}

/// Owners are held until the device has run their launch, in however many batches; what is left when the stream's wrapper
/// goes is retired.
#[test]
fn owners_are_held_until_their_launch_has_run() {
    let (null, _turn) = null();
    let bare = Bare::new();
    let device = bare.device();
    let count = Arc::new(AtomicUsize::new(0));
    // SAFETY: a stream of the context, which is never destroyed.
    let stream = unsafe { device.raw_stream(bare.stream.cast(), Some(Arc::new(Held(Arc::clone(&count))))) }.unwrap();
    let (engine, problem, plan) = plan(&device);
    let bytes = engine.weights_bytes(&problem).unwrap() as usize;
    let (room, a, c) = (bare.memory(bytes), bare.memory(M as usize * K * 2), bare.memory(M as usize * N * 2));
    // SAFETY: live memory of the device, ordered by the stream.
    let weights = unsafe {
        let memory = OwnedMemory::from_raw(&device, room, bytes, None);
        PreparedWeights::from_device(&stream, problem.prepared_layout().unwrap(), memory).unwrap()
    };
    let workspace = bare.memory(plan.workspace_bytes(M).max(16) as usize);
    let launch = |stream: &RawStream| {
        let owners: [Owner; 3] = [(); 3].map(|()| -> Owner { Arc::new(Held(Arc::clone(&count))) });
        // SAFETY: as above.
        let operands = unsafe {
            let a = Memory::<f16>::from_raw(a, M as usize * K).owner(&owners[0]);
            let c = MemoryMut::<f16>::from_raw(c, M as usize * N).owner(&owners[1]);
            let room = MemoryMut::from_raw(workspace, plan.workspace_bytes(M).max(16) as usize).owner(&owners[2]);
            Operands::prepared(M, a, &weights, c).workspace(room)
        };
        plan.launch(stream, operands).unwrap();
    };
    null.busy(true);
    (0..500).for_each(|_| launch(&stream));
    assert_eq!(count.load(SeqCst), 0, "something was dropped that may still be read");
    assert_eq!(stream.release().unwrap(), 1500);
    null.busy(false);
    assert_eq!(stream.release().unwrap(), 0);
    assert_eq!(count.load(SeqCst), 1500);
    null.busy(true);
    launch(&stream);
    assert_eq!(stream.release().unwrap(), 3);
    launch(&stream);
    drop(stream);
    device.reclaim().unwrap();
    assert_eq!(count.load(SeqCst), 1500);
    null.busy(false);
    device.reclaim().unwrap();
    assert_eq!(count.load(SeqCst), 1507, "with the stream's own");
}

/// Every piece of memory that a launch can have may have an owner, which is held for the last launch, also where an event
/// stands for an earlier one.
#[test]
fn every_operands_owner_is_held_for_every_launch() {
    let (null, _turn) = null();
    let bare = Bare::new();
    let device = bare.device();
    let stream = bare.stream(&device);
    let plan = plan(&device).0.plan(&grouped()).unwrap();
    let (count, memory) = (Arc::new(AtomicUsize::new(0)), bare.memory(2 * N * K));
    let owners = [(); 11].map(|()| -> Owner { Arc::new(Held(Arc::clone(&count))) });
    null.busy(true);
    for launches in 1..=3 {
        // SAFETY: nothing runs on the null driver, and the memory is never freed.
        plan.launch(&stream, unsafe { owned(memory, &owners) }).unwrap();
        assert_eq!(stream.release().unwrap(), launches * owners.len());
    }
    drop(owners);
    assert_eq!(count.load(SeqCst), 0);
    null.busy(false);
    assert_eq!((stream.release().unwrap(), count.load(SeqCst)), (0, 11));
}

/// Where a later kernel of a launch is refused, an earlier one is under way.
#[test]
fn a_launch_that_gets_half_way_holds_its_owners() {
    let (null, _turn) = null();
    let bare = Bare::new();
    let device = bare.device();
    let stream = bare.stream(&device);
    let (engine, ..) = plan(&device);
    let variant = "mma.t16x64x128.s4.sequential.uniform.direct.k2".parse().unwrap();
    let selected = engine.kernel_for(Choice::pinned(&grouped(), &variant, device.arch()).unwrap()).unwrap();
    let (memory, before) = (bare.memory(2 * N * K), null.launches());
    let owners = [(); 11].map(|()| -> Owner { Arc::new(()) });
    null.busy(true);
    null.refuse(2);
    // SAFETY: as above.
    let error = selected.kernel().launch(&stream, unsafe { owned(memory, &owners) }).unwrap_err();
    assert!(error.is_driver() && null.launches() == before + 1, "{error}");
    assert_eq!(stream.release().unwrap(), owners.len());
}

/// Copies and fills hold owners as launches do: in a stream, and in a graph.
#[test]
fn copies_and_fills_hold_owners() {
    let (null, _turn) = null();
    let bare = Bare::new();
    let device = bare.device();
    let stream = bare.stream(&device);
    let (count, [from, to]) = (Arc::new(AtomicUsize::new(0)), [64, 128].map(|bytes| bare.memory(bytes)));
    let owners = || [(); 3].map(|()| -> Owner { Arc::new(Held(Arc::clone(&count))) });
    let put = |stream: &RawStream, owners: &[Owner; 3]| {
        // SAFETY: live memory of the device, ordered by the stream.
        unsafe {
            let from = Memory::<u8>::from_raw(from, 64).owner(&owners[0]);
            let all = |owner| MemoryMut::<u8>::from_raw(to, 128).owner(owner);
            all(&owners[2]).clear(stream).unwrap();
            from.copy_rows_to(stream, 4, &mut all(&owners[1])).unwrap();
            from.copy_to(stream, &mut all(&owners[1]).part(0..64).unwrap()).unwrap();
        }
    };
    null.busy(true);
    put(&stream, &owners());
    assert_eq!((stream.release().unwrap(), count.load(SeqCst)), (3, 0));
    null.busy(false);
    assert_eq!((stream.release().unwrap(), count.load(SeqCst)), (0, 3));

    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
    put(&stream, &owners());
    let graph = stream.cudarc().end_capture(CUgraphInstantiate_flags(0)).unwrap().unwrap();
    device.reclaim().unwrap();
    assert_eq!(count.load(SeqCst), 3);
    drop(graph);
    device.reclaim().unwrap();
    assert_eq!(count.load(SeqCst), 6);

    let (plain, owner) = (device.context().new_stream().unwrap(), owners());
    // SAFETY: as above.
    let (from, mut to) = unsafe { (Memory::<u8>::from_raw(from, 64).owner(&owner[0]), MemoryMut::from_raw(to, 128)) };
    let error = from.copy_rows_to(&plain, 4, &mut to).unwrap_err();
    assert!(error.is_operand() && error.to_string().contains("RawStream"), "{error}");
}

/// Owners that free their memory at once do so when nothing uses it any more: of what is repacked, of launches, of graphs.
#[test]
fn nothing_uses_what_owners_free() {
    let (null, _turn) = null();
    let bare = Bare::new();
    let device = bare.device();
    let stream = bare.stream(&device);
    let (engine, problem, plan) = plan(&device);
    let b = [(); 2].map(|()| [N * K / 2, N * K / 16].map(|bytes| (Freed::allocated(bytes), bytes)));
    // SAFETY: live memory of the device, which the owners keep.
    let given = b.each_ref().map(|pair| unsafe {
        let [codes, scales] =
            pair.each_ref().map(|((address, owner), bytes)| Memory::from_raw(*address, *bytes).owner(owner));
        Matrix::nvfp4(codes, scales)
    });
    let weights = engine.prepare(stream.cudarc(), &problem, given).unwrap();
    drop(b);
    device.reclaim().unwrap();
    assert_eq!(null.races(), (0, String::new()));

    let room = plan.workspace_bytes(M).max(16) as usize;
    let [c, workspace] = [M as usize * N * 2, room].map(|bytes| bare.memory(bytes));
    let launch = || {
        let (a, owner) = Freed::allocated(M as usize * K * 2);
        // SAFETY: as above, or ordered by the stream.
        let operands = unsafe {
            let a = Memory::<f16>::from_raw(a, M as usize * K).owner(&owner);
            let c = MemoryMut::<f16>::from_raw(c, M as usize * N);
            Operands::prepared(M, a, &weights, c).workspace(MemoryMut::from_raw(workspace, room))
        };
        plan.launch(&stream, operands).unwrap();
    };
    (0..300).for_each(|_| launch());
    assert_eq!(stream.release().unwrap(), 0);
    assert_eq!(null.races(), (0, String::new()));

    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
    launch();
    let graph = stream.cudarc().end_capture(CUgraphInstantiate_flags(0)).unwrap().unwrap();
    graph.launch().unwrap();
    drop(graph);
    drop((weights, plan, engine, stream, device));
    bare.free(&[c, workspace]);
    assert_eq!((null.races(), null.allocations()), ((0, String::new()), 0));
}

/// Where nothing can hold owners they are refused; so is a context of another device.
#[test]
fn owners_need_a_raw_stream() {
    let (null, _turn) = null();
    let bare = Bare::new();
    let device = bare.device();
    let (engine, problem, plan) = plan(&device);
    let stream = device.context().new_stream().unwrap();
    let given = || (stream.alloc_zeros::<u8>(N * K / 2).unwrap(), stream.alloc_zeros::<u8>(N * K / 16).unwrap());
    let weights: Weights<'_> = engine.weights(&stream, &problem, [given(), given()]).unwrap();
    let (a, mut c) = (bare.memory(M as usize * K * 2), stream.alloc_zeros::<f16>(M as usize * N).unwrap());
    let before = null.launches();
    let owner: Owner = Arc::new(());
    // SAFETY: live memory of the device.
    let a = unsafe { Memory::<f16>::from_raw(a, M as usize * K) }.owner(&owner);
    let error = plan.launch(&stream, Operands::new(M, a, &weights, &mut c)).unwrap_err();
    assert!(error.is_operand() && error.to_string().contains("RawStream"), "{error}");
    assert_eq!(null.launches(), before);
    // SAFETY: never used.
    assert!(unsafe { Device::from_raw(7, bare.context.cast(), None) }.is_err());
}

/// A context that is not the device's primary one is used and never destroyed.
#[test]
fn a_context_that_is_not_the_primary_one_is_taken_over() {
    let (null, _turn) = null();
    Bare::new();
    let handle = ptr::without_provenance_mut::<c_void>(0x7777);
    let (count, left) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicI32::new(-1)));
    let (owner, before) = ((Held(Arc::clone(&count)), Last(null, Arc::clone(&left))), null.loaded() - null.unloaded());
    // SAFETY: the null driver takes any handle.
    let device = unsafe { Device::from_raw(0, handle, Some(Arc::new(owner))) }.unwrap();
    assert_eq!(device.context().cu_ctx().cast(), handle);
    let (engine, ..) = plan(&device);
    drop(device);
    assert_eq!(count.load(SeqCst), 0, "the engine's kernels are in it");
    drop(engine);
    assert_eq!(count.load(SeqCst), 1);
    assert_eq!(left.load(SeqCst), before, "it went before what is in the context");
    assert_eq!(null.destroyed(), 0);
    assert_eq!(null.races(), (0, String::new()));
}
