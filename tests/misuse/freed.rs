//! Memory is freed behind all that reads it.

use cudarc::driver::{CudaSlice, sys};
use warpsmith::run::{Device, Operands, PreparedWeights, Weights};

use crate::scene::{M, Tracked, engine, given, kept, launch, plans, problem, tokens, untracked};

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
