//! Weights are there before they are read.

use std::sync::Arc;

use warpsmith::run::{Device, Given, Operands, PreparedWeights, Shared, Weights};

use crate::scene::{K, M, N, Tracked, engine, given, launch, piece, plans, tokens, untracked};

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
