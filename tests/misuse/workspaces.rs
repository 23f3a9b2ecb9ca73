//! A workspace is used by one stream at a time.

use warpsmith::run::{Device, Operands, Workspace};

use crate::scene::{M, Tracked, engine, given, plans, tokens, untracked};

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
