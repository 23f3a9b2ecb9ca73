//! Graphs hold what they read.

use std::sync::Arc;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaStream, DeviceRepr, ValidAsZeroBits, sys};
use warpsmith::run::{Device, Operands, Shared, Weights, Workspace};

use crate::scene::{K, M, N, Tracked, captured, engine, given, grouped, kept, plans, tokens, untracked};

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
