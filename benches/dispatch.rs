//! What a call costs on the host, up to the driver: looking up the kernel for M, checking operands, filling in addresses.
//!
//! The driver is one without a device (tests/support/null_driver.c), whose launch looks at what it gets and returns; the
//! first benchmark is what a bare launch costs there. M changes at every call, in no order. A sample is the median of
//! batches of some microseconds, so that it says what a call takes and not what else the machine has to do.
#![allow(missing_docs, clippy::unwrap_used)]

use warpsmith_testing::null;

use std::hint::black_box;
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use cudarc::driver::sys::{self, CUlaunchConfig};
use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, DevicePtr, DevicePtrMut};
use cudarc::nvrtc::Ptx;
use half::f16;
use warpsmith::cache::KernelCache;
use warpsmith::engine::{BoundPlan, Engine, Plan};
use warpsmith::format::Prepared;
use warpsmith::run::{
    Device, Matrix, MatrixMut, Memory, MemoryMut, Operands, Owner, PreparedWeights, RawStream, Workspace,
};
use warpsmith::spec::{Activation, Problem};

use null::Null;

const M_MAX: u32 = 256;

fn single() -> Problem {
    Problem::dual_gemm(Activation::Silu).n(1024).k(512).prepared().m_up_to(M_MAX)
}

fn problems() -> [(&'static str, Problem); 3] {
    let unprepared = Problem::dual_gemm(Activation::Silu).n(1024).k(512).m_up_to(M_MAX);
    [("single", single()), ("grouped", single().grouped(4)), ("unprepared", unprepared)]
}

struct Bench {
    device: Device,
    engine: Engine,
}

impl Bench {
    fn new() -> Self {
        Null::driver();
        let device = Device::open(0).unwrap();
        // SAFETY: nothing runs.
        unsafe { device.context().disable_event_tracking() };
        let cache = KernelCache::builder().disk(Path::new(env!("CARGO_TARGET_TMPDIR")).join("dispatch")).build();
        let engine = Engine::with_cache(&device, cache);
        Self { device, engine }
    }
}

/// A stream and operands of its own for each thread, none of which shares a cache line (or the one fetched beside it)
/// with another's.
#[repr(align(128))]
struct Caller {
    stream: Arc<CudaStream>,
    plan: Plan,
    a: CudaSlice<f16>,
    weights: Weights,
    offsets: Option<CudaSlice<i32>>,
    c: CudaSlice<f16>,
    workspace: Workspace,
    m: u32,
}

enum Weights {
    Prepared(PreparedWeights),
    Given([CudaSlice<u8>; 4]),
}

impl Caller {
    fn new(bench: &Bench, plan: &Plan) -> Self {
        let (problem, rows) = (plan.problem(), M_MAX as usize);
        let stream = bench.device.context().new_stream().unwrap();
        let (n, k) = (problem.columns() as usize, problem.depth() as usize);
        let weights = if problem.is_prepared() {
            let layout = problem.prepared_layout().unwrap();
            let prepared = Prepared::from_bytes(layout, vec![0; layout.bytes()]).unwrap();
            Weights::Prepared(PreparedWeights::from_host(&stream, &prepared).unwrap())
        } else {
            let bytes = |length: usize| stream.alloc_zeros(length).unwrap();
            Weights::Given([bytes(n * k / 2), bytes(n * k / 16), bytes(n * k / 2), bytes(n * k / 16)])
        };
        Self {
            a: stream.alloc_zeros(rows * k).unwrap(),
            offsets: problem.groups().map(|groups| stream.alloc_zeros(groups as usize + 1).unwrap()),
            c: stream.alloc_zeros(rows * n).unwrap(),
            workspace: plan.workspace(&stream, M_MAX).unwrap(),
            plan: plan.clone(),
            stream,
            weights,
            m: 0,
        }
    }

    /// In no order, but each M once in a while.
    fn next_m(&mut self) -> u32 {
        self.m = (self.m + 157) % M_MAX;
        self.m + 1
    }

    fn launch(&mut self) {
        let m = self.next_m();
        self.with_operands(m, |plan, stream, operands| plan.launch(stream, operands).unwrap());
    }

    /// As [`Caller::launch`], of a plan that is bound to its operands.
    fn launch_bound(&mut self, bound: &BoundPlan) {
        let m = self.next_m();
        self.with_operands(m, |_, stream, operands| bound.launch(stream, operands).unwrap());
    }

    fn bind(&mut self) -> BoundPlan {
        self.with_operands(M_MAX, |plan, stream, operands| plan.bind(stream, &operands).unwrap())
    }

    /// Does something with the operands where they are put together, as an engine does.
    #[inline]
    fn with_operands<T>(&mut self, m: u32, act: impl FnOnce(&Plan, &CudaStream, Operands<'_>) -> T) -> T {
        let Self { stream, plan, a, weights, offsets, c, workspace, .. } = self;
        let (a, c) = (Matrix::f16(&*a), MatrixMut::f16(c));
        match (weights, offsets) {
            (Weights::Prepared(weights), None) => {
                act(plan, stream, Operands::prepared(m, a, weights, c).workspace(workspace))
            }
            (Weights::Prepared(weights), Some(offsets)) => {
                act(plan, stream, Operands::prepared(m, a, weights, c).offsets(&*offsets).workspace(workspace))
            }
            (Weights::Given([gate, gate_scales, up, up_scales]), _) => {
                let (gate, up) = (Matrix::nvfp4(&*gate, &*gate_scales), Matrix::nvfp4(&*up, &*up_scales));
                act(plan, stream, Operands::dual_gemm(m, a, gate, up, c).workspace(workspace))
            }
        }
    }
}

/// The same operands as somebody else has them: addresses, and a stream by its handle.
struct RawCaller {
    stream: RawStream,
    a: u64,
    c: u64,
    workspace: (u64, usize),
    owner: Owner,
    caller: Caller,
}

impl RawCaller {
    fn new(bench: &Bench, plan: &Plan) -> Self {
        let mut caller = Caller::new(bench, plan);
        // SAFETY: the caller's stream, which is dropped after this one.
        let stream = unsafe { bench.device.raw_stream(caller.stream.cu_stream().cast(), None) }.unwrap();
        let room = usize::try_from(plan.workspace_bytes(M_MAX).max(16)).unwrap();
        let workspace = caller.stream.alloc_zeros::<u8>(room).unwrap();
        let workspace = (workspace.leak(), room);
        let (a, c) = (caller.a.device_ptr(&caller.stream).0, caller.c.device_ptr_mut(&caller.stream).0);
        Self { stream, a, c, workspace, owner: Arc::new(()), caller }
    }

    fn launch(&mut self, owner: Option<&Owner>) {
        let m = self.caller.next_m();
        let Weights::Prepared(weights) = &self.caller.weights else { return };
        let problem = self.caller.plan.problem();
        let (n, k) = (problem.columns() as usize, problem.depth() as usize);
        // SAFETY: the caller's memory, and memory that is never freed; nothing runs.
        let operands = unsafe {
            let a = Memory::<f16>::from_raw(self.a, M_MAX as usize * k);
            let a = match owner {
                Some(owner) => a.owner(owner),
                None => a,
            };
            let c = MemoryMut::<f16>::from_raw(self.c, M_MAX as usize * n);
            let (a, c) = (Matrix::f16(a), MatrixMut::f16(c));
            Operands::prepared(m, a, weights, c).workspace(MemoryMut::from_raw(self.workspace.0, self.workspace.1))
        };
        self.caller.plan.launch(&self.stream, operands).unwrap();
    }
}

/// Calls of a batch.
const BATCH: u64 = 200;

/// The time of `calls` calls, if all take as long as those of the median batch.
fn typical(calls: u64, mut call: impl FnMut()) -> Duration {
    let mut batches: Vec<Duration> = (0..calls.div_ceil(BATCH))
        .map(|_| {
            let start = Instant::now();
            (0..BATCH).for_each(|_| call());
            start.elapsed()
        })
        .collect();
    batches.sort_unstable();
    batches[batches.len() / 2].mul_f64(calls as f64 / BATCH as f64)
}

/// The same when every core makes as many calls, the context bound before: of the slowest.
fn on_every_core<T: Send>(bench: &Bench, calls: u64, callers: &mut [T], call: impl Fn(&mut T) + Sync) -> Duration {
    let start = Barrier::new(callers.len());
    std::thread::scope(|scope| {
        let timed = |caller| {
            let (start, call) = (&start, &call);
            move || {
                let caller: &mut T = caller;
                bench.device.context().bind_to_thread().unwrap();
                start.wait();
                typical(calls, || call(caller))
            }
        };
        let threads: Vec<_> = callers.iter_mut().map(|caller| scope.spawn(timed(caller))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).max().unwrap()
    })
}

fn dispatch(criterion: &mut Criterion) {
    let bench = Bench::new();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);

    let bare = Bare::new(&bench);
    criterion.bench_function("bare launch of the null driver, one thread", |bencher| {
        bencher.iter_custom(|calls| typical(calls, || bare.launch()));
    });
    // What the machine itself takes longer when it is busy.
    criterion.bench_function(&format!("bare launch of the null driver, {cores} threads on {cores} cores"), |bencher| {
        bencher.iter_custom(|calls| on_every_core(&bench, calls, &mut vec![(); cores], |()| bare.launch()));
    });
    for (name, problem) in problems() {
        let plan = bench.engine.plan(&problem).unwrap();
        criterion.bench_function(&format!("plan.launch, {name}, one thread"), |bencher| {
            let mut caller = Caller::new(&bench, &plan);
            bencher.iter_custom(|calls| typical(calls, || caller.launch()));
        });
        criterion.bench_function(&format!("bound.launch, {name}, one thread"), |bencher| {
            let mut caller = Caller::new(&bench, &plan);
            let bound = caller.bind();
            bencher.iter_custom(|calls| typical(calls, || caller.launch_bound(&bound)));
        });
        criterion.bench_function(&format!("plan.launch, {name}, {cores} threads on {cores} cores"), |bencher| {
            let mut callers: Vec<Caller> = (0..cores).map(|_| Caller::new(&bench, &plan)).collect();
            bencher.iter_custom(|calls| on_every_core(&bench, calls, &mut callers, Caller::launch));
        });
    }
    let problem = single();
    let plan = bench.engine.plan(&problem).unwrap();
    criterion.bench_function("plan.launch, single, raw memory, one thread", |bencher| {
        let mut caller = RawCaller::new(&bench, &plan);
        bencher.iter_custom(|calls| typical(calls, || caller.launch(None)));
    });
    criterion.bench_function("plan.launch, single, raw memory with an owner, one thread", |bencher| {
        let mut caller = RawCaller::new(&bench, &plan);
        let owner = Arc::clone(&caller.owner);
        bencher.iter_custom(|calls| typical(calls, || caller.launch(Some(&owner))));
    });
    criterion.bench_function("engine.kernel, warm, one thread", |bencher| {
        let mut m = 0;
        (1..=M_MAX).for_each(|m| drop(bench.engine.kernel(&problem, m).unwrap()));
        bencher.iter_custom(|calls| {
            typical(calls, || {
                m = (m + 157) % M_MAX;
                drop(black_box(bench.engine.kernel(black_box(&problem), m + 1).unwrap()));
            })
        });
    });
}

/// A kernel, launched as by a caller who has everything ready.
struct Bare {
    stream: Arc<CudaStream>,
    function: CudaFunction,
}

impl Bare {
    fn new(bench: &Bench) -> Self {
        let selected = bench.engine.kernel(&single(), 1).unwrap();
        let image = selected.kernel().cubin().image().to_vec();
        let module = bench.device.context().load_module(Ptx::from_binary(image)).unwrap();
        let function = module.load_function(&selected.kernel().spec().symbol()).unwrap();
        Self { stream: bench.device.context().new_stream().unwrap(), function }
    }

    fn launch(&self) {
        let config = CUlaunchConfig {
            gridDimX: 32,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 128,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            hStream: self.stream.cu_stream(),
            attrs: std::ptr::null_mut(),
            numAttrs: 0,
        };
        let (none, config) = (std::ptr::null_mut(), black_box(&raw const config));
        // SAFETY: the null driver looks at no argument.
        unsafe { sys::cuLaunchKernelEx(config, self.function.cu_function(), none, none.cast()).result().unwrap() }
    }
}

criterion_group!(benches, dispatch);
criterion_main!(benches);
