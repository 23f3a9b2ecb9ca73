//! A thread that serves: steps of changing M, a graph that is replayed, and now and then a look at the results.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::Instant;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaSlice, CudaStream};
use half::f16;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use warpsmith::run::Workspace;

use super::latency::Latencies;
use super::model::{Layer, Mlp};
use crate::shared::Result;

/// What goes on beside the serving, in this order; then it ends.
pub const PHASES: [&str; 5] = [
    "before",
    "while kernels of unexpected shapes are compiled",
    "while they are loaded",
    "while their results are compared with the host's",
    "after",
];

/// Rows of the captured graph.
const GRAPH_TOKENS: u32 = 16;
/// Rows of a step that is looked at, at most: the truth is computed on the host.
const CHECKED_TOKENS: u32 = 96;
/// Steps that may be in the stream at a time, which has room for some thousand launches.
const STEPS_AHEAD: u64 = 64;
/// A replay of the graph every so many steps.
const REPLAY_EVERY: u64 = 8;
/// Calls of each phase that are remembered.
const CALLS: usize = 1 << 20;

/// What a thread has seen.
#[derive(Default)]
pub struct Served {
    pub steps: u64,
    pub replays: u64,
    /// Of `plan.launch`, by phase: those right after the stream was synchronised, and all others.
    pub launches: [[Latencies; 2]; PHASES.len()],
    /// Of `graph.launch`.
    pub graphs: Latencies,
    /// Results that were looked at, and elements of them that are wrong.
    pub checked: u64,
    pub wrong: usize,
}

/// Buffers of one stream.
struct Buffers {
    x: CudaSlice<f16>,
    h: CudaSlice<f16>,
    y: CudaSlice<f16>,
    workspace: Workspace,
}

impl Buffers {
    fn new(stream: &Arc<CudaStream>, mlp: &Mlp, layers: &[Layer; 2], x: &[f16], tokens: u32) -> Result<Self> {
        let [gate_up, down] = layers;
        let room = |columns: u32| tokens as usize * columns as usize;
        let bytes = gate_up.plan.workspace_bytes(tokens).max(down.plan.workspace_bytes(tokens));
        Ok(Self {
            x: stream.clone_htod(&x[..room(mlp.gate_up.depth())])?,
            h: stream.alloc_zeros(room(mlp.gate_up.columns()))?,
            y: stream.alloc_zeros(room(mlp.down.columns()))?,
            workspace: Workspace::of_bytes(stream, bytes)?,
        })
    }

    /// Both layers of `m` tokens; `each` is told how long a launch took.
    fn step(
        &mut self,
        stream: &CudaStream,
        layers: &[Layer; 2],
        m: u32,
        mut each: impl FnMut(std::time::Duration),
    ) -> Result<()> {
        let Self { x, h, y, workspace } = self;
        let [gate_up, down] = layers;
        let start = Instant::now();
        gate_up.plan.launch(stream, gate_up.operands(m, x, h, workspace))?;
        let between = Instant::now();
        down.plan.launch(stream, down.operands(m, h, y, workspace))?;
        let end = Instant::now();
        // Only now, so that neither launch is told to have taken the time of noting the other.
        each(between - start);
        each(end - between);
        Ok(())
    }

    /// Elements of a step of `m` tokens that are wrong.
    fn wrong(&self, stream: &Arc<CudaStream>, layers: &[Layer; 2], m: u32) -> Result<usize> {
        let [gate_up, down] = layers;
        let (x, h, y) = (stream.clone_dtoh(&self.x)?, stream.clone_dtoh(&self.h)?, stream.clone_dtoh(&self.y)?);
        stream.synchronize()?;
        Ok(gate_up.wrong(m, &x, &h)? + down.wrong(m, &h, &y)?)
    }
}

/// Serves until `phase` says that it is over.
pub fn serve(stream: &Arc<CudaStream>, mlp: &Mlp, layers: &[Layer; 2], phase: &AtomicU8, seed: u64) -> Result<Served> {
    let mut random = SmallRng::seed_from_u64(seed);
    let values = mlp.tokens.max(GRAPH_TOKENS) as usize * mlp.gate_up.depth() as usize;
    let x: Vec<f16> = (0..values).map(|_| f16::from_f32(random.random_range(-2.0..2.0))).collect();
    let mut own = Buffers::new(stream, mlp, layers, &x, mlp.tokens)?;
    let graph_tokens = GRAPH_TOKENS.min(mlp.tokens);
    let mut captured = Buffers::new(stream, mlp, layers, &x, graph_tokens)?;
    let graph = capture(stream, || captured.step(stream, layers, graph_tokens, |_| {}))?;

    let room = || Latencies::with_room(CALLS);
    let launches = std::array::from_fn(|_| [room(), room()]);
    let mut served = Served { launches, graphs: room(), ..Served::default() };
    let mut looked_at = [false; PHASES.len()];
    let mut is_first = true;
    loop {
        let now = usize::from(phase.load(Relaxed));
        let Some(latencies) = served.launches.get_mut(now) else { break };
        // Mostly a few tokens, sometimes a whole prompt.
        let most = if random.random_range(0..4) == 0 { mlp.tokens } else { mlp.tokens.min(32) };
        let looks = !std::mem::replace(&mut looked_at[now], true);
        let m = random.random_range(1..=if looks { most.min(CHECKED_TOKENS) } else { most });
        own.step(stream, layers, m, |took| {
            latencies[usize::from(!std::mem::take(&mut is_first))].note(took);
        })?;
        served.steps += 1;
        if served.steps.is_multiple_of(REPLAY_EVERY) {
            let start = Instant::now();
            graph.launch()?;
            served.graphs.note(start.elapsed());
            served.replays += 1;
        }
        if looks {
            served.wrong += own.wrong(stream, layers, m)?;
            served.checked += 1;
            is_first = true;
        }
        if served.steps.is_multiple_of(STEPS_AHEAD) {
            stream.synchronize()?;
            is_first = true;
        }
    }
    graph.launch()?;
    served.wrong += captured.wrong(stream, layers, graph_tokens)?;
    served.checked += 1;
    Ok(served)
}

/// What `put` puts into the stream, as a graph.
fn capture(stream: &Arc<CudaStream>, put: impl FnOnce() -> Result<()>) -> Result<CudaGraph> {
    // What was uploaded is there before the capture begins.
    stream.synchronize()?;
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    let put = put();
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags);
    put?;
    graph?.ok_or_else(|| "nothing was captured".into())
}
