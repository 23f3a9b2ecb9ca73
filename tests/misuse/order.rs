//! What orders uses of memory, and what does not.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream};
use half::f16;
use warpsmith::format::Prepared;
use warpsmith::run::{Device, Memory, MemoryMut, Operands, PreparedWeights, Shared, Weights};
use warpsmith_tune::Timer;

use crate::scene::{K, M, N, Tracked, engine, given, grouped, kept, piece, plans, tokens, untracked};

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

/// Where memory begins may be asked between two uses: what reads it in another stream is still waited for.
#[test]
fn asking_where_memory_is_hides_no_reader() {
    let tracked = Tracked::new();
    let device = Device::open(0).unwrap();
    let (first, second) = (device.context().new_stream().unwrap(), device.context().new_stream().unwrap());
    let mut memory: CudaSlice<u8> = first.alloc_zeros(64).unwrap();
    let mut copy: CudaSlice<u8> = second.alloc_zeros(64).unwrap();
    Memory::from(&memory).copy_to(&second, &mut MemoryMut::from(&mut copy)).unwrap();
    MemoryMut::from(&mut memory).check_alignment(&first, "it", 16).unwrap();
    MemoryMut::from(&mut memory).clear(&first).unwrap();
    tracked.is_ordered();
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

/// What the launch behind reads first: asked for within its bounds, ordered as what is read, refused where it is elsewhere.
#[test]
fn weights_that_are_read_next_are_an_operand() {
    const PARAM: usize = 128;
    let tracked = Tracked::new();
    let device = Device::open(0).unwrap();
    untracked(&device);
    let engine = engine(&device);
    let [(problem, plan), _] = plans(&engine);
    let [first, second] = [(); 2].map(|()| device.context().new_stream().unwrap());
    let weights = engine.weights(&first, &problem, given(&first)).unwrap();
    tracked.null.busy(true);
    let next = engine.weights(&second, &problem, given(&second)).unwrap();
    let ((a, mut c), mut workspace) = (tokens(&first), plan.workspace(&first, M).unwrap());
    tracked.null.watch(true);
    let operands = Operands::new(M, &a, &weights, &mut c).next(plan.reads_first(M, &next));
    plan.launch_dependent(&first, operands.workspace(&mut workspace)).unwrap();
    let seen = tracked.null.seen();
    let (address, stride, rest) = (seen.param(PARAM), seen.param(PARAM + 8), seen.param(PARAM + 16));
    let (strips, bytes) = (rest & 0xFFFF_FFFF, rest >> 32);
    let Weights::Prepared(prepared) = &next else { panic!("prepared") };
    assert!(address != 0 && bytes > 0 && bytes % 16 == 0 && bytes <= stride, "{bytes} of {stride}");
    assert!(strips * stride <= prepared.layout().bytes() as u64, "{strips} times {stride}");
    plan.launch(&first, Operands::new(M, &a, &weights, &mut c).workspace(&mut workspace)).unwrap();
    assert_eq!((tracked.null.seen().param(PARAM), tracked.null.seen().param(PARAM + 16)), (0, 0));
    tracked.null.watch(false);
    tracked.null.busy(false);
    // Without tracking this is the caller's to order.
    first.synchronize().unwrap();
    drop((next, weights));
    tracked.is_ordered();

    let user = CudaContext::new(0).unwrap().new_stream().unwrap();
    let layout = problem.prepared_layout().unwrap();
    let zeros = Prepared::from_bytes(layout, vec![0; layout.bytes()]).unwrap();
    let [weights, next] =
        [&first, &user].map(|stream| Weights::Prepared(PreparedWeights::from_host(stream, &zeros).unwrap()));
    let operands = Operands::new(M, &a, &weights, &mut c).next(plan.reads_first(M, &next));
    let error = plan.launch(&first, operands.workspace(&mut workspace)).unwrap_err();
    assert!(error.is_operand() && error.to_string().contains("the weights that are read next"), "{error}");
}

/// A kernel asks by the groups of its own tiles: behind the end of weights that have fewer.
#[test]
fn weights_of_other_groups_are_not_asked_for() {
    let tracked = Tracked::new();
    let device = Device::open(0).unwrap();
    let engine = engine(&device);
    let [(problem, plan), _] = plans(&engine);
    let grouped = engine.plan(&grouped()).unwrap();
    let stream = device.context().new_stream().unwrap();
    let next = engine.weights(&stream, &problem, given(&stream)).unwrap();
    let [a, gate, up] = [M as usize, 2 * N, 2 * N]
        .map(|rows| (piece::<u8>(&device, rows * K / 2), piece::<u8>(&device, rows * K / 16)));
    let (offsets, mut c) = (piece::<i32>(&device, 3), piece::<f16>(&device, M as usize * N));
    let mut workspace = piece::<u8>(&device, 1 << 20);
    let next = plan.reads_first(M, &next);
    assert!(next.is_some());
    let operands = Operands::dual_gemm(M, (&a.0, &a.1), (&gate.0, &gate.1), (&up.0, &up.1), &mut c);
    tracked.null.watch(true);
    grouped.launch(&stream, operands.offsets(&offsets).workspace(&mut workspace).next(next)).unwrap();
    // Strips and bytes of each.
    assert_eq!(tracked.null.seen().param(144), 0);
    tracked.null.watch(false);
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
