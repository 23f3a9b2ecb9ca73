//! What an inference engine does with this crate: prepare weights, warm up, seal, serve from threads with M changing at
//! every step, replay a captured graph, and not wait where a shape comes that nobody expected.
//!
//! ```text
//! cargo run --release --example embed
//! ```
//!
//! `warpsmith serve` is the same with results that are checked and every latency told by what goes on beside it.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaSlice, CudaStream};
use half::f16;
use warpsmith::cache::{KernelCache, Seal};
use warpsmith::engine::{Engine, Manifest, OnMiss, Plan, Rows};
use warpsmith::run::{Device, Operands, Weights, Workspace};
use warpsmith::spec::{Activation, Problem};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const HIDDEN: u32 = 2048;
const INTERMEDIATE: u32 = 1536;
const TOKENS: u32 = 512;
const THREADS: u32 = 4;
const STEPS: u32 = 20_000;

/// h = silu(x·gateᵀ) ⊙ (x·upᵀ), y = h·downᵀ: shared by all threads.
struct Mlp {
    gate_up: (Plan, Weights<'static>),
    down: (Plan, Weights<'static>),
}

impl Mlp {
    fn new(engine: &Engine, stream: &Arc<CudaStream>, gate_up: &Problem, down: &Problem) -> Result<Self> {
        let layer = |problem: &Problem, products: usize| -> Result<_> {
            // A checkpoint's codes and block scales; here zeros.
            let values = INTERMEDIATE as usize * HIDDEN as usize;
            let given = || {
                Ok::<_, Box<dyn Error + Send + Sync>>((
                    stream.alloc_zeros(values / 2)?,
                    stream.alloc_zeros(values / 16)?,
                ))
            };
            let given = (0..products).map(|_| given()).collect::<Result<Vec<_>>>()?;
            let weights = engine.weights(stream, problem, given)?;
            Ok((engine.plan(&problem.m_up_to(TOKENS))?, weights))
        };
        Ok(Self { gate_up: layer(gate_up, 2)?, down: layer(down, 1)? })
    }
}

/// Buffers of one stream.
struct Buffers {
    x: CudaSlice<f16>,
    h: CudaSlice<f16>,
    y: CudaSlice<f16>,
    workspace: Workspace,
}

impl Buffers {
    fn new(stream: &Arc<CudaStream>, mlp: &Mlp) -> Result<Self> {
        let room = |columns: u32| stream.alloc_zeros::<f16>((TOKENS * columns) as usize);
        let bytes = mlp.gate_up.0.workspace_bytes(TOKENS).max(mlp.down.0.workspace_bytes(TOKENS));
        let workspace = Workspace::of_bytes(stream, bytes)?;
        Ok(Self { x: room(HIDDEN)?, h: room(INTERMEDIATE)?, y: room(HIDDEN)?, workspace })
    }

    /// Two launches: checked, asynchronous, without an allocation or a lock.
    fn step(&mut self, stream: &CudaStream, mlp: &Mlp, m: u32) -> Result<()> {
        let Self { x, h, y, workspace } = self;
        let (gate_up, down) = (&mlp.gate_up, &mlp.down);
        gate_up.0.launch(stream, Operands::new(m, &*x, &gate_up.1, &mut *h).workspace(&mut *workspace))?;
        down.0.launch(stream, Operands::new(m, &*h, &down.1, &mut *y).workspace(workspace))?;
        Ok(())
    }
}

/// What one thread does: steps of changing M, and a graph of a step of 16 tokens; how long a step took on the host.
fn serve(stream: &Arc<CudaStream>, mlp: &Mlp, seed: u32) -> Result<Vec<Duration>> {
    let (mut own, mut captured) = (Buffers::new(stream, mlp)?, Buffers::new(stream, mlp)?);
    stream.synchronize()?;
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    let put = captured.step(stream, mlp, 16);
    let graph = stream.end_capture(CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    put?;
    let graph = graph?.ok_or("nothing was captured")?;

    let mut took = Vec::with_capacity(STEPS as usize);
    for step in 0..STEPS {
        let m = 1 + (step.wrapping_mul(2_654_435_761) ^ seed) % TOKENS;
        let start = Instant::now();
        own.step(stream, mlp, m)?;
        took.push(start.elapsed());
        if step % 8 == 0 {
            graph.launch()?;
        }
        // The stream has room for some thousand launches.
        if step % 64 == 0 {
            stream.synchronize()?;
        }
    }
    stream.synchronize()?;
    Ok(took)
}

/// A shape of nobody's manifest: something that fits serves it until its own kernel, compiled behind it, is there.
fn surprise(engine: &Engine, problem: &Problem, m: u32) -> Result<()> {
    let start = Instant::now();
    let own = loop {
        match engine.kernel(problem, m) {
            Ok(selected) if selected.stands_in_for().is_none() => break selected,
            Ok(_) => {}
            Err(error) if error.is_not_loaded() => {}
            Err(error) => return Err(error.into()),
        }
        thread::sleep(Duration::from_millis(1));
    };
    println!("unexpected: {problem}, m = {m}: {} after {:.0?}", own.kernel().spec().variant(), start.elapsed());
    Ok(())
}

fn main() -> Result<()> {
    let device = Device::open(0)?;
    // SAFETY: a buffer is used in the one stream of its thread, and synchronised before it is released; weights are read by
    // all, after the stream that made them was waited for. (Capturing and tracking events do not go together.)
    unsafe { device.context().disable_event_tracking() };
    let stream = device.context().new_stream()?;
    let cache = KernelCache::builder().install_if_missing().build();
    let engine = Engine::with_cache(&device, cache).on_miss(OnMiss::Fallback);
    let gate_up = engine.native(&Problem::dual_gemm(Activation::Silu).n(INTERMEDIATE).k(HIDDEN));
    let down = engine.native(&Problem::gemm().n(HIDDEN).k(INTERMEDIATE));

    let rows = Rows::new(1..=TOKENS)?;
    let report = engine.warm_up(&Manifest::new().with(&gate_up, &rows).with(&down, &rows));
    println!("{report}\n");
    engine.seal(Seal::Warn);
    let mlp = Mlp::new(&engine, &stream, &gate_up, &down)?;
    stream.synchronize()?;

    let served = thread::scope(|scope| {
        let serving = |seed: u32| {
            let (device, mlp) = (&device, &mlp);
            scope.spawn(move || serve(&device.context().new_stream()?, mlp, seed))
        };
        let threads: Vec<_> = (0..THREADS).map(serving).collect();
        surprise(&engine, &down, 4 * TOKENS)?;
        let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join().map_err(|_| "a thread panicked")?;
        threads.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;

    let mut took = served.concat();
    took.sort_unstable();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    println!("{} steps: p50 {:.2?}, p99 {:.2?}, p99.9 {:.2?} on the host", took.len(), at(0.5), at(0.99), at(0.999));
    // What was asked for makes the next manifest.
    println!("\n{}\n{}", engine.stats(), engine.record().manifest());
    Ok(())
}
