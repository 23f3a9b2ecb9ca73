//! Layers up to the driver, which here is one without a device: launches, chunks, refusals, padding.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
use half::{bf16, f16};
use warpsmith::cache::{KernelCache, Seal};
use warpsmith::engine::{Engine, Manifest, Plan, Rows};
use warpsmith::format::Format;
use warpsmith::internal::build::Source;
use warpsmith::pick::{Picker, Policy};
use warpsmith::run::{Device, MemoryMut};
use warpsmith::spec::Spec;
use warpsmith_layers::{
    GatedMlp, LayerConfig, LayerOperands, Linear, LinearConfig, MlpConfig, MlpWeights, Moe, MoeConfig, MoeWeights,
    Quantised, Step,
};
use warpsmith_testing::counting;
use warpsmith_testing::null::Null;

const MOE: &str = "moe.silu:bf16:h256:i96:softmax:e8:k2:renormalised:shared64:residual";
const MOE_E4M3: &str = "moe.silu:bf16:h256:i96:softmax:e8:k2:renormalised:shared64:e4m3:residual";
const MOE_NVFP4: &str = "moe.silu:bf16:h256:i96:softmax:e8:k2:renormalised:shared64:nvfp4:residual";
const HIDDEN: usize = 256;
const EXPERTS: usize = 8;
const K: usize = 2;
const TOKENS: u32 = 4500;

/// One kernel in the place of all matrix kernels: this driver finds whatever it is asked for.
fn small(_: &Spec) -> warpsmith::Result<Source> {
    Ok(Source::new("small", "extern \"C\" __global__ void small(int* x) { *x = 1; }\n", &[], ["small"]))
}

/// The null driver's counters are for the whole process, so tests take turns.
struct Bench {
    null: &'static Null,
    engine: Engine,
    stream: Arc<CudaStream>,
    _turn: MutexGuard<'static, ()>,
}

impl Bench {
    fn new() -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let null = Null::driver();
        let device = Device::open(0).unwrap();
        // SAFETY: nothing runs.
        unsafe { device.context().disable_event_tracking() };
        let stream = device.context().new_stream().unwrap();
        let disk = Path::new(env!("CARGO_TARGET_TMPDIR")).join("layers");
        // SAFETY: the null driver runs nothing.
        let cache = unsafe { KernelCache::builder().install_if_missing().render(small) }.disk(disk).build();
        Self { null, engine: Engine::with_cache(&device, cache), stream, _turn: turn }
    }

    fn quantised(&self, rows: usize, k: usize) -> Quantised {
        let zeros = |bytes| self.stream.alloc_zeros(bytes).unwrap();
        Quantised::new(zeros(rows * k / 2), zeros(rows * k / 16))
    }

    fn mlp_weights(&self, groups: usize, hidden: usize, intermediate: usize) -> MlpWeights {
        let first = || self.quantised(groups * intermediate, hidden);
        MlpWeights::gated(first(), first(), self.quantised(groups * hidden, intermediate))
    }

    fn moe(&self) -> Moe {
        self.moe_of(MOE)
    }

    fn moe_of(&self, spelling: &str) -> Moe {
        let config: MoeConfig = spelling.parse().unwrap();
        let weights = MoeWeights::new(self.mlp_weights(EXPERTS, HIDDEN, 96));
        let weights = match config.shared_expert() {
            Some(_) => weights.shared(self.mlp_weights(1, HIDDEN, 64)),
            None => weights,
        };
        let weights = weights.scale(2.5);
        Moe::new(&self.engine, &self.stream, &config, weights, TOKENS).unwrap()
    }
}

/// Operands of `TOKENS` tokens.
struct Buffers {
    x: CudaSlice<bf16>,
    logits: CudaSlice<f32>,
    residual: CudaSlice<bf16>,
    out: CudaSlice<bf16>,
    workspace: CudaSlice<u8>,
}

impl Buffers {
    fn new(stream: &Arc<CudaStream>, bytes: u64) -> Self {
        let tokens = TOKENS as usize;
        Self {
            x: stream.alloc_zeros(tokens * HIDDEN).unwrap(),
            logits: stream.alloc_zeros(tokens * EXPERTS).unwrap(),
            residual: stream.alloc_zeros(tokens * HIDDEN).unwrap(),
            out: stream.alloc_zeros(tokens * HIDDEN).unwrap(),
            workspace: stream.alloc_zeros(bytes as usize).unwrap(),
        }
    }

    fn operands(&mut self, tokens: u32) -> LayerOperands<'_> {
        LayerOperands::new(tokens, &self.x, &mut self.out, &mut self.workspace).residual(&self.residual)
    }
}

fn passes(plan: &Plan, m: u32) -> u64 {
    plan.kernel(m).unwrap().spec().passes(m).count() as u64
}

#[test]
fn a_forward_is_its_launches_in_their_order() {
    let bench = Bench::new();
    let (moe, stream) = (bench.moe(), &bench.stream);
    let mut buffers = Buffers::new(stream, moe.workspace_bytes(TOKENS));
    let logits = buffers.logits.clone();
    bench.null.watch(true);
    for tokens in [0, 1, 8, 9, 17, 256, 257, 1024, TOKENS] {
        let (mut of_steps, steps) = (0, moe.steps(tokens));
        for step in Step::ALL {
            let before = bench.null.launches();
            moe.step(stream, step, buffers.operands(tokens), &logits).unwrap();
            let launches = bench.null.launches() - before;
            of_steps += if steps.contains(&step) { launches } else { 0 };
            if tokens == 0 {
                continue;
            }
            let [up, down] = moe.plans();
            let rows = tokens * K as u32;
            let seen = bench.null.seen();
            let last = |plan: &Plan| (rows, plan.kernel(rows).unwrap().spec().symbol());
            match step {
                Step::Route => assert_eq!(launches, if tokens <= 256 { 1 } else { 2 }),
                Step::Up => assert_eq!((launches, (seen.m(), seen.kernel())), (passes(up, rows), last(up))),
                Step::Down => assert_eq!((launches, (seen.m(), seen.kernel())), (passes(down, rows), last(down))),
                Step::Combine => assert_eq!(launches, 1),
                Step::Shared => assert!(launches >= 2),
                Step::Experts => assert_eq!(launches, u64::from(tokens <= 8)),
            }
            // The kernel before hands over what the next one takes.
            let (begin, end) = (buffers.workspace.device_ptr(stream).0, buffers.workspace.len() as u64);
            let within = |address: u64| (begin..begin + end).contains(&address) && address.is_multiple_of(256);
            match step {
                Step::Up => assert!(seen.param(0) == buffers.x.device_ptr(stream).0 && within(seen.param(72))),
                Step::Down => assert!(seen.param(0) == begin && within(seen.param(72))),
                _ => {}
            }
        }
        let before = bench.null.launches();
        moe.forward(stream, buffers.operands(tokens), &logits).unwrap();
        assert_eq!(bench.null.launches() - before, of_steps);
    }
    bench.null.watch(false);
}

/// Few tokens are one launch behind a shared expert's, by logits and by ids, in as many workspaces as there are counters for; in
/// others they are launches as of many.
#[test]
fn workspaces_without_counters_take_the_other_way() {
    let bench = Bench::new();
    let (moe, stream) = (bench.moe_of(&MOE.replace(":shared64:residual", "")), &bench.stream);
    let bytes = moe.workspace_bytes(8) as usize;
    let x = stream.alloc_zeros::<bf16>(8 * HIDDEN).unwrap();
    let mut out = stream.alloc_zeros::<bf16>(8 * HIDDEN).unwrap();
    let logits = stream.alloc_zeros::<f32>(8 * EXPERTS).unwrap();
    let (ids, weights) = (stream.alloc_zeros::<i32>(16).unwrap(), stream.alloc_zeros::<f32>(16).unwrap());
    // All in one piece of memory, a few bytes apart: nothing runs.
    const COUNTERS: usize = 1024;
    let mut all = stream.alloc_zeros::<u8>(bytes + 256 * COUNTERS).unwrap();
    for _ in 0..2 {
        for nth in 0..=COUNTERS {
            for by_ids in [false, true] {
                let before = bench.null.launches();
                let workspace = all.slice_mut(256 * nth..256 * nth + bytes);
                let operands = LayerOperands::new(8, &x, &mut out, workspace);
                match by_ids {
                    true => moe.forward_chosen(stream, operands, &ids, &weights).unwrap(),
                    false => moe.forward(stream, operands, &logits).unwrap(),
                }
                let launches = bench.null.launches() - before;
                assert_eq!(launches == 1, nth < COUNTERS, "workspace {nth}: {launches} launches");
                assert!(nth < COUNTERS || launches >= 4);
            }
        }
    }
}

/// Behind a seal a layer of any limit is made of what its manifest has warmed up.
#[test]
fn a_warm_layer_compiles_nothing() {
    [MOE, MOE_E4M3, MOE_NVFP4].into_iter().for_each(is_warm);
}

fn is_warm(spelling: &str) {
    let bench = Bench::new();
    let config: LayerConfig = spelling.parse().unwrap();
    let manifest = config.manifest(&Rows::new(1..=TOKENS).unwrap(), bench.engine.device().arch()).unwrap();
    let report = bench.engine.warm_up(&manifest);
    assert!(report.is_complete(), "{report}");
    bench.engine.seal(Seal::Refuse);
    let (before, moe) = (bench.engine.stats(), bench.moe_of(spelling));
    let mut buffers = Buffers::new(&bench.stream, moe.workspace_bytes(TOKENS));
    let logits = buffers.logits.clone();
    for tokens in [1, 17, 300, TOKENS] {
        moe.forward(&bench.stream, buffers.operands(tokens), &logits).unwrap();
    }
    let after = bench.engine.stats();
    assert_eq!((after.cache.sealed.refusals, after.cache.compiles), (0, before.cache.compiles));
    assert_eq!(after.loads, before.loads);
    // What was asked for is what was warmed up, with the rows that came.
    let recorded = bench.engine.record().manifest();
    let keys = |manifest: &Manifest| {
        let problems = manifest.problems().map(|(problem, _)| problem.to_string());
        let beside = manifest.routes().map(ToString::to_string).chain(manifest.combines().map(ToString::to_string));
        let quantisers = manifest.quantisers().map(ToString::to_string);
        // And those of few tokens, of 16-bit products.
        let experts = manifest
            .to_string()
            .lines()
            .filter(|line| line.starts_with("experts"))
            .map(str::to_owned)
            .collect::<Vec<_>>();
        problems.chain(beside).chain(quantisers).chain(experts).collect::<Vec<_>>()
    };
    assert_eq!(keys(&recorded), keys(&manifest));
    for (problem, rows) in recorded.problems() {
        // Two experts a token.
        let k = if problem.groups().is_some() { 2 } else { 1 };
        let known = manifest.rows(problem).unwrap();
        assert!(*rows == Rows::new(k..=k * TOKENS).unwrap() && known.clone().and(rows) == *known, "{recorded}");
    }
    // Another layer is not there.
    let other: MoeConfig = MOE.replace("softmax", "sigmoid").parse().unwrap();
    assert!(bench.engine.route(other.route()).unwrap_err().is_sealed());
}

/// Tokens are quantised once for all that take them, rows between up and down always.
#[test]
fn products_of_rounded_rows_are_quantised_for() {
    let bench = Bench::new();
    let stream = &bench.stream;
    bench.null.watch(true);
    let launches = |layer: &str| {
        let config: MoeConfig = layer.parse().unwrap();
        let weights = MoeWeights::new(bench.mlp_weights(EXPERTS, HIDDEN, 96));
        let weights = match config.shared_expert() {
            Some(_) => weights.shared(bench.mlp_weights(1, HIDDEN, 64)),
            None => weights,
        };
        let moe = Moe::new(&bench.engine, stream, &config, weights, TOKENS).unwrap();
        let mut buffers = Buffers::new(stream, moe.workspace_bytes(TOKENS));
        let logits = buffers.logits.clone();
        let rows = 17 * config.route().experts_per_token();
        let counts = Step::ALL.map(|step| {
            let before = bench.null.launches();
            let operands = LayerOperands::new(17, &buffers.x, &mut buffers.out, &mut buffers.workspace);
            moe.step(stream, step, operands, &logits).unwrap();
            let seen = bench.null.seen();
            let (begin, end) = (buffers.workspace.device_ptr(stream).0, buffers.workspace.len() as u64);
            let within = |address: u64| (begin..begin + end).contains(&address) && address.is_multiple_of(256);
            // Products are of what a quantiser wrote, not of x, and not of what is at the workspace's begin: h.
            if config.expert().rounded().is_some() && [Step::Up, Step::Down].contains(&step) {
                assert!(seen.m() == rows && within(seen.param(0)) && seen.param(0) != begin, "{layer} {step:?}");
            }
            bench.null.launches() - before
        });
        let products = moe.plans().map(|plan| passes(plan, rows));
        (counts, products, moe.workspace_bytes(17))
    };
    let plain = "moe.silu:bf16:h256:i96:softmax:e8:k2";
    // And of NVFP4: a quantiser is two launches, and each product's factors are one.
    for (layer, more, of_nvfp4) in [
        (plain, [0, 0, 1, 1, 0, 0], [0, 0, 3, 3, 0, 0]),
        (&format!("{plain}:shared64"), [2, 0, 0, 1, 0, 0], [6, 0, 1, 3, 0, 0]),
        ("moe.silu:bf16:h256:i96:sigmoid:e8:k1:shared64:weighted_inputs", [2, 0, 1, 1, 0, 0], [6, 0, 3, 3, 0, 0]),
    ] {
        let (of_plain, products, bytes) = launches(layer);
        let (found, of_e4m3, more_bytes) = launches(&format!("{layer}:e4m3"));
        let of_products = [0, 0, of_e4m3[0] - products[0], of_e4m3[1] - products[1], 0, 0];
        // A shared expert's products may have another number of passes, too, but do not for so few rows.
        let expected: Vec<u64> = (0..6).map(|at| of_plain[at] + of_products[at] + more[at]).collect();
        assert_eq!(found.to_vec(), expected, "{layer}");
        assert!(more_bytes >= bytes + 17 * 256 + 17 * 128, "{layer}: {more_bytes} {bytes}");
        let (found, coded, more_bytes) = launches(&format!("{layer}:nvfp4"));
        let of_products = [0, 0, coded[0] - products[0], coded[1] - products[1], 0, 0];
        let expected: Vec<u64> = (0..6).map(|at| of_plain[at] + of_products[at] + of_nvfp4[at]).collect();
        assert_eq!(found.to_vec(), expected, "{layer} of NVFP4");
        assert!(more_bytes >= bytes + 17 * 144 + 17 * 72, "{layer}: {more_bytes} {bytes}");
    }
    bench.null.watch(false);
    // Values, then factors, of an awkward number of rows; what the kernel itself takes is behind.
    let config: LinearConfig = "linear:bf16:n48:k192:e4m3".parse().unwrap();
    let linear = Linear::new(&bench.engine, stream, &config, bench.quantised(48, 192), 100).unwrap();
    for tokens in [1, 3, 17, 100] {
        let of_kernel = linear.plan().workspace_bytes(tokens).next_multiple_of(256);
        let (values, factors) = (u64::from(tokens) * 192, u64::from(tokens) * 4);
        let expected = values.next_multiple_of(256) + factors.next_multiple_of(256) + of_kernel;
        assert_eq!(linear.workspace_bytes(tokens), expected);
        let (x, mut out) = (stream.alloc_zeros::<bf16>(100 * 192).unwrap(), stream.alloc_zeros::<bf16>(4800).unwrap());
        let mut workspace = stream.alloc_zeros::<u8>(expected as usize).unwrap();
        let before = bench.null.launches();
        linear.forward(stream, LayerOperands::new(tokens, &x, &mut out, &mut workspace)).unwrap();
        assert_eq!(bench.null.launches() - before, 1 + passes(linear.plan(), tokens));
    }
}

/// A token's bits would depend on those beside it; and factors of weights are one, or one a group.
#[test]
fn products_of_nvfp4_values_are_refused_with_batch_invariant_kernels() {
    let bench = Bench::new();
    let (engine, stream) = (&bench.engine, &bench.stream);
    let device = engine.device();
    let picker = Picker::builder(device.name(), device.arch()).policy(Policy::BatchInvariant).build().unwrap();
    // SAFETY: the null driver runs nothing.
    let cache = unsafe { KernelCache::builder().install_if_missing().render(small) }.build();
    let invariant = Engine::with_cache_and_picker(device, cache, picker);
    let config: LinearConfig = "linear:bf16:n48:k192:nvfp4".parse().unwrap();
    let error = Linear::new(&invariant, stream, &config, bench.quantised(48, 192), 8).unwrap_err();
    assert!(error.is_unsupported(), "{error:?}");
    let why = "a token's bits depend on the others: not with kernels that are batch-invariant";
    assert!(error.to_string().starts_with("linear:bf16:n48:k192:nvfp4") && error.to_string().ends_with(why), "{error}");
    let weights = bench.quantised(48, 192).alpha(stream.alloc_zeros::<f32>(2).unwrap());
    let error = Linear::new(engine, stream, &config, weights, 8).unwrap_err();
    assert!(error.is_operand() && error.to_string().ends_with("weights have 2 factors: 1 are needed"), "{error}");
    // Codes, block scales, the factor with its maxima, and factors that are scaled; what the kernel itself takes is behind.
    let linear = Linear::new(engine, stream, &config, bench.quantised(48, 192).alpha(0.5), 100).unwrap();
    for tokens in [1, 3, 17, 100] {
        let pieces =
            [u64::from(tokens) * 96, u64::from(tokens) * 12, 513 * 4, 32, linear.plan().workspace_bytes(tokens)];
        assert_eq!(linear.workspace_bytes(tokens), pieces.map(|bytes| bytes.next_multiple_of(256)).iter().sum::<u64>());
        let (x, mut out) = (stream.alloc_zeros::<bf16>(100 * 192).unwrap(), stream.alloc_zeros::<bf16>(4800).unwrap());
        let mut workspace = stream.alloc_zeros::<u8>(linear.workspace_bytes(tokens) as usize).unwrap();
        let before = bench.null.launches();
        linear.forward(stream, LayerOperands::new(tokens, &x, &mut out, &mut workspace)).unwrap();
        assert_eq!(bench.null.launches() - before, 3 + passes(linear.plan(), tokens));
    }
}

#[test]
fn a_forward_allocates_nothing() {
    [MOE, MOE_E4M3, MOE_NVFP4].into_iter().for_each(allocates_nothing);
}

fn allocates_nothing(spelling: &str) {
    let bench = Bench::new();
    bench.null.track(true);
    let (moe, stream) = (bench.moe_of(spelling), &bench.stream);
    let mut buffers = Buffers::new(stream, moe.workspace_bytes(300));
    let (logits, ids) = (buffers.logits.clone(), stream.alloc_zeros::<i32>(TOKENS as usize * K).unwrap());
    let weights = stream.alloc_zeros::<f32>(TOKENS as usize * K).unwrap();
    stream.synchronize().unwrap();
    let mut put = |tokens| {
        moe.forward(stream, buffers.operands(tokens), &logits).unwrap();
        moe.forward_chosen(stream, buffers.operands(tokens), &ids, &weights).unwrap();
    };
    // A thread's first launches make room for tensor maps.
    [1, 17, 300, 1000].iter().for_each(|tokens| put(*tokens));
    let device = bench.null.allocations();
    let host = counting::allocations();
    [1, 17, 300, 1000, 1, 1000].iter().for_each(|tokens| put(*tokens));
    assert_eq!(counting::allocations(), host);
    assert_eq!(bench.null.allocations(), device);
    bench.null.track(false);
}

/// Chunks are as large as the workspace allows, and each is what a forward of so many tokens is.
#[test]
fn a_short_workspace_makes_chunks() {
    let bench = Bench::new();
    let (moe, stream) = (bench.moe(), &bench.stream);
    assert!((0..TOKENS).step_by(7).all(|tokens| moe.workspace_bytes(tokens) <= moe.workspace_bytes(tokens + 7)));
    assert!((1..TOKENS).step_by(13).all(|tokens| moe.workspace_bytes(tokens).is_multiple_of(256)));
    let launches = |buffers: &mut Buffers, tokens| {
        let (logits, before) = (buffers.logits.clone(), bench.null.launches());
        moe.forward(stream, buffers.operands(tokens), &logits).map(|()| bench.null.launches() - before)
    };
    let mut whole = Buffers::new(stream, moe.workspace_bytes(TOKENS));
    for room in [1, 100, 299, TOKENS - 1] {
        let mut buffers = Buffers::new(stream, moe.workspace_bytes(room) + 255);
        for tokens in [1, 99, 100, 101, 300, TOKENS] {
            let (full, rest) = (tokens / room, tokens % room);
            let expected: u64 = (0..full)
                .map(|_| room)
                .chain((rest > 0).then_some(rest))
                .map(|part| launches(&mut whole, part).unwrap())
                .sum();
            // Rounded up, room may be for somewhat more.
            let found = launches(&mut buffers, tokens).unwrap();
            assert!(found <= expected && (room > 1 || found > 0), "{tokens} by {room}: {found}, not {expected}");
            assert!(tokens > room || found == expected);
        }
    }
    let mut short = Buffers::new(stream, moe.workspace_bytes(1) - 256);
    let error = launches(&mut short, 8).unwrap_err();
    let numbers =
        format!("the workspace has {} bytes: one token needs {}", moe.workspace_bytes(1) - 256, moe.workspace_bytes(1));
    assert!(error.is_operand() && error.to_string().contains(&numbers), "{error}");
}

#[test]
fn what_does_not_fit_is_refused_before_a_launch() {
    let bench = Bench::new();
    let (moe, stream) = (bench.moe(), &bench.stream);
    let mut buffers = Buffers::new(stream, moe.workspace_bytes(TOKENS));
    let Buffers { x, logits, residual, out, workspace } = &mut buffers;
    let (ids, weights) = (stream.alloc_zeros::<i32>(15).unwrap(), stream.alloc_zeros::<f32>(16).unwrap());
    let halves = stream.alloc_zeros::<f16>(HIDDEN * 8).unwrap();
    let before = bench.null.launches();
    let mut found = Vec::new();
    let mut refusal = |result: warpsmith::Result<()>| {
        let error = result.unwrap_err();
        assert!(error.is_operand(), "{error:?}");
        found.push(error.to_string());
    };
    let few = |elements: usize| 0..elements;
    let mut whole =
        |tokens, residual: &CudaSlice<bf16>, of: &mut dyn FnMut(LayerOperands<'_>) -> warpsmith::Result<()>| {
            of(LayerOperands::new(tokens, &*x, &mut *out, &mut *workspace).residual(residual))
        };
    refusal(whole(TOKENS + 1, residual, &mut |operands| moe.forward(stream, operands, &*logits)));
    refusal(whole(9, residual, &mut |operands| moe.forward(stream, operands, logits.slice(few(71)))));
    refusal(whole(9, residual, &mut |operands| moe.forward(stream, operands, &residual.clone())));
    refusal(whole(8, residual, &mut |operands| moe.forward_chosen(stream, operands, &ids, &weights)));
    let operands = LayerOperands::new(9, x.slice(few(9 * HIDDEN - 1)), &mut *out, &mut *workspace);
    refusal(moe.forward(stream, operands.residual(&*residual), &*logits));
    let operands = LayerOperands::new(8, &halves, &mut *out, &mut *workspace).residual(&*residual);
    refusal(moe.forward(stream, operands, &*logits));
    refusal(moe.forward(stream, LayerOperands::new(8, &*x, &mut *out, &mut *workspace), &*logits));
    let operands = LayerOperands::new(8, &*x, out.slice_mut(few(100)), &mut *workspace).residual(&*residual);
    refusal(moe.forward(stream, operands, &*logits));
    let operands = LayerOperands::new(8, &*x, &mut *out, workspace.slice_mut(8..)).residual(&*residual);
    refusal(moe.forward(stream, operands, &*logits));
    let operands = LayerOperands::new(8, &*x, &mut *out, workspace.slice_mut(few(256))).residual(&*residual);
    refusal(moe.forward(stream, operands, &*logits));
    assert_eq!(bench.null.launches(), before);
    let expected = [
        "4501 tokens: the layer is for 4500 at most",
        "logits has 71 elements, 72 are needed",
        "logits is bf16, the layer is for f32",
        "ids has 15 elements, 16 are needed",
        "x has 2303 elements, 2304 are needed",
        "x is f16, the layer is for bf16",
        "residual: not given, the layer has one",
        "out has 100 elements, 2048 are needed",
        "the workspace does not begin at a multiple of 256 bytes",
        "the workspace has 256 bytes: one token needs",
    ];
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(MOE) && found.contains(expected), "`{found}`, not `{expected}`");
    }
    assert_eq!(found.len(), expected.len());
}

#[test]
fn weights_that_do_not_fit_are_refused() {
    let bench = Bench::new();
    let (engine, stream) = (&bench.engine, &bench.stream);
    let refusal = |text: &str, weights: MoeWeights| {
        let config: MoeConfig = text.parse().unwrap();
        let error = Moe::new(engine, stream, &config, weights, 8).unwrap_err();
        assert!(error.is_operand(), "{error:?}");
        error.to_string()
    };
    let of = |groups, intermediate| bench.mlp_weights(groups, 64, intermediate);
    let softmax = "moe.silu:f16:h64:i96:softmax:e8:k2";
    let ungated = || MlpWeights::ungated(bench.quantised(8 * 96, 64), bench.quantised(8 * 64, 96));
    let biased = || {
        let first = bench.quantised(8 * 96, 64).bias(stream.alloc_zeros::<f16>(8 * 96).unwrap());
        MlpWeights::gated(first, bench.quantised(8 * 96, 64), bench.quantised(8 * 64, 96))
    };
    let bias = |elements: usize| stream.alloc_zeros::<f32>(elements).unwrap();
    for (found, expected) in [
        (refusal(softmax, MoeWeights::new(of(7, 96))), "gate: codes has 21504 elements, 24576 are needed"),
        (refusal(softmax, MoeWeights::new(ungated())), "gate: not given, the layer has one"),
        (refusal("moe.relu2:f16:h64:i96:softmax:e8:k2", MoeWeights::new(of(8, 96))), "gate: given, the layer has none"),
        (refusal(softmax, MoeWeights::new(of(8, 96)).shared(of(1, 64))), "a shared expert: given, the layer has none"),
        (refusal(&format!("{softmax}:shared64"), MoeWeights::new(of(8, 96))), "a shared expert: not given"),
        (refusal(softmax, MoeWeights::new(of(8, 96)).router_bias(bias(8))), "router bias: given, the layer has none"),
        (
            refusal("moe.silu:f16:h64:i96:sigmoid_bias:e8:k2", MoeWeights::new(of(8, 96)).router_bias(bias(7))),
            "router bias has 7 elements, 8 are needed",
        ),
        (refusal(softmax, MoeWeights::new(biased())), "gate: a bias given, the layer has none"),
        (refusal(&format!("{softmax}:bias_f16"), MoeWeights::new(biased())), "up: a bias not given, the layer has it"),
    ] {
        assert!(found.contains(expected), "`{found}`, not `{expected}`");
    }
}

#[test]
fn an_mlp_and_a_linear_layer_are_two_launches_and_one() {
    let bench = Bench::new();
    let (engine, stream) = (&bench.engine, &bench.stream);
    let config: MlpConfig = "mlp.silu:f16:h256:i704".parse().unwrap();
    let mlp = GatedMlp::new(engine, stream, &config, bench.mlp_weights(1, 256, 704), 100).unwrap();
    let config: LinearConfig = "linear:f16:n48:k256:row_scale:bias_f32".parse().unwrap();
    let factors = || stream.alloc_zeros::<f32>(48).unwrap();
    let weights = bench.quantised(48, 256).row_scale(factors()).bias(factors()).alpha(0.5);
    let linear = Linear::new(engine, stream, &config, weights, 100).unwrap();
    let (x, mut out) = (stream.alloc_zeros::<f16>(100 * 256).unwrap(), stream.alloc_zeros::<f16>(100 * 256).unwrap());
    let mut workspace = stream.alloc_zeros::<u8>(mlp.workspace_bytes(100) as usize).unwrap();
    for tokens in [0, 1, 100] {
        let before = bench.null.launches();
        mlp.forward(stream, LayerOperands::new(tokens, &x, &mut out, &mut workspace)).unwrap();
        let plans = mlp.plans().map(|plan| if tokens > 0 { passes(plan, tokens) } else { 0 });
        assert_eq!(bench.null.launches() - before, plans.iter().sum::<u64>());
    }
    let operands = LayerOperands::new(101, &x, &mut out, &mut workspace);
    assert!(mlp.forward(stream, operands).unwrap_err().to_string().contains("101 tokens: the layer is for 100"));
    let operands = LayerOperands::new(1, &x, &mut out, &mut workspace).residual(&x);
    assert!(mlp.forward(stream, operands).unwrap_err().to_string().ends_with("residual: given, the layer has none"));
    let launches = |step| {
        let before = bench.null.launches();
        mlp.step(stream, step, LayerOperands::new(9, &x, &mut out, &mut workspace)).unwrap();
        bench.null.launches() - before
    };
    let [up, down] = mlp.plans();
    assert_eq!(Step::ALL.map(launches), [0, 0, passes(up, 9), passes(down, 9), 0, 0]);
    let before = bench.null.launches();
    linear.forward(stream, LayerOperands::new(7, &x, &mut out, &mut workspace)).unwrap();
    assert_eq!(bench.null.launches() - before, passes(linear.plan(), 7));
    // Memory that somebody else manages is cut like any other.
    let begin = workspace.device_ptr(stream).0;
    // SAFETY: it is the workspace's, and nothing runs.
    let raw = unsafe { MemoryMut::<u8>::from_raw(begin, workspace.len()) };
    mlp.forward(stream, LayerOperands::new(3, &x, &mut out, raw)).unwrap();
    // A layer that needs no workspace takes one of nothing.
    assert_eq!(linear.workspace_bytes(1), 0);
    // SAFETY: no byte of it is there to be used.
    let none = unsafe { MemoryMut::<u8>::from_raw(0, 0) };
    linear.forward(stream, LayerOperands::new(1, &x, &mut out, none)).unwrap();
}

/// x lies in the workspace, with zeros behind each row, in chunks, too.
#[test]
fn tokens_of_a_linear_layer_are_padded() {
    let bench = Bench::new();
    let (engine, stream) = (&bench.engine, &bench.stream);
    let config: LinearConfig = "linear:f16:n48:k80".parse().unwrap();
    let linear = Linear::new(engine, stream, &config, bench.quantised(48, 80), 100).unwrap();
    let bytes = linear.workspace_bytes(100) as usize;
    assert!(bytes >= 100 * 128 * 2 && linear.workspace_bytes(1) >= 256, "{bytes}");
    let values: Vec<f16> = (0..100 * 80).map(|at| f16::from_f32(at as f32)).collect();
    let (x, mut out) = (stream.clone_htod(&values).unwrap(), stream.alloc_zeros::<f16>(100 * 48).unwrap());
    for room in [bytes, linear.workspace_bytes(7) as usize] {
        let mut workspace = stream.clone_htod(&vec![0xFFu8; room]).unwrap();
        let before = bench.null.launches();
        linear.forward(stream, LayerOperands::new(100, &x, &mut out, &mut workspace)).unwrap();
        let all = stream.clone_dtoh(&workspace).unwrap();
        // Of the last chunk, which is all or the last two.
        let (first, count) = if room == bytes { (0, 100) } else { (98, 2) };
        assert_eq!(bench.null.launches() - before > 1, count == 2);
        for (row, found) in all.chunks(2 * 128).take(count).enumerate() {
            let of_row = values[(first + row) * 80..][..80].iter().flat_map(|value| value.to_le_bytes());
            assert!(found.iter().copied().eq(of_row.chain([0; 2 * 48])), "{row}");
        }
    }
    let error = Linear::new(engine, stream, &config, bench.quantised(48, 64), 100).unwrap_err();
    assert!(error.to_string().contains("codes has 1536 elements, 1920 are needed"), "{error}");
}

/// Padded as NVFP4 is, with a scale for 32.
#[test]
fn mxfp4_weights_are_taken_where_they_are_said() {
    let bench = Bench::new();
    let zeros = |bytes| bench.stream.alloc_zeros(bytes).unwrap();
    let of = |rows: usize, k: usize| Quantised::mxfp4(zeros(rows * k / 2), zeros(rows * k / 32));
    let made = |spelling: &str, weights| {
        let config: MlpConfig = spelling.parse().unwrap();
        GatedMlp::new(&bench.engine, &bench.stream, &config, weights, TOKENS)
    };
    let weights = || MlpWeights::gated(of(96, HIDDEN), of(96, HIDDEN), of(HIDDEN, 96));
    let mlp = made(&format!("mlp.silu:bf16:h{HIDDEN}:i96:mxfp4"), weights()).unwrap();
    assert!(mlp.plans().iter().all(|plan| plan.problem().b_format() == Format::Mxfp4));
    let mut buffers = Buffers::new(&bench.stream, mlp.workspace_bytes(TOKENS));
    let operands = LayerOperands::new(TOKENS, &buffers.x, &mut buffers.out, &mut buffers.workspace);
    mlp.forward(&*bench.stream, operands).unwrap();

    let other = made(&format!("mlp.silu:bf16:h{HIDDEN}:i96"), weights()).unwrap_err();
    assert!(other.is_operand() && other.to_string().contains("are mxfp4, the layer is for nvfp4"), "{other}");
    let other = made(&format!("mlp.silu:bf16:h{HIDDEN}:i96:mxfp4"), bench.mlp_weights(1, HIDDEN, 96)).unwrap_err();
    assert!(other.is_operand() && other.to_string().contains("are nvfp4, the layer is for mxfp4"), "{other}");
    let other = made(&format!("mlp.silu:bf16:h{HIDDEN}:i96:mxfp4:e4m3"), weights()).unwrap_err();
    assert!(other.is_unsupported() && other.to_string().ends_with("e4m3: weights are nvfp4, not mxfp4"), "{other}");
}

/// A vector for a shared expert's gate, and a launch more for weighted inputs.
#[test]
fn gates_and_weighted_inputs_are_of_the_layer() {
    let bench = Bench::new();
    let made = |spelling: &str, gate: Option<usize>| {
        let config: MoeConfig = spelling.parse().unwrap();
        let weights = MoeWeights::new(bench.mlp_weights(EXPERTS, HIDDEN, 96)).shared(bench.mlp_weights(1, HIDDEN, 64));
        let weights = match gate {
            Some(elements) => weights.shared_gate(bench.stream.alloc_zeros::<f32>(elements).unwrap()),
            None => weights,
        };
        Moe::new(&bench.engine, &bench.stream, &config, weights, TOKENS)
    };
    let plain = format!("moe.silu:bf16:h{HIDDEN}:i96:sigmoid:e{EXPERTS}:k1:shared64");
    let gated = format!("{plain}:shared_gate");
    let refusals = [
        (made(&gated, None), "a shared expert's gate: not given, the layer has one"),
        (made(&plain, Some(HIDDEN)), "a shared expert's gate: given, the layer has none"),
        (made(&gated, Some(HIDDEN - 1)), "a shared expert's gate has 255 elements, 256 are needed"),
    ];
    for (made, why) in refusals {
        let error = made.unwrap_err();
        assert!(error.is_operand() && error.to_string().ends_with(why), "{error}");
    }
    let launches = |spelling: &str, gate: Option<usize>| {
        let moe = made(spelling, gate).unwrap();
        let mut buffers = Buffers::new(&bench.stream, moe.workspace_bytes(TOKENS));
        let logits = buffers.logits.clone();
        let before = bench.null.launches();
        let operands = LayerOperands::new(17, &buffers.x, &mut buffers.out, &mut buffers.workspace);
        moe.forward(&*bench.stream, operands, &logits).unwrap();
        (bench.null.launches() - before, moe.workspace_bytes(17))
    };
    let (of_plain, bytes) = launches(&plain, None);
    assert_eq!(launches(&gated, Some(HIDDEN)), (of_plain, bytes));
    assert_eq!(launches(&format!("{plain}:weighted_inputs"), None), (of_plain + 1, bytes));
}

/// Operands of another device are refused before the first launch, whichever launch would take them.
#[test]
fn operands_of_another_device_are_refused() {
    let bench = Bench::new();
    let (moe, stream) = (bench.moe(), &bench.stream);
    let elsewhere = Device::open(1).unwrap().context().new_stream().unwrap();
    let bytes = moe.workspace_bytes(TOKENS);
    let (mut here, mut there) = (Buffers::new(stream, bytes), Buffers::new(&elsewhere, bytes));
    let before = bench.null.launches();
    let refused = |name: &str, operands: LayerOperands<'_>, logits: &CudaSlice<f32>| {
        let error = moe.forward(&**stream, operands, logits).unwrap_err();
        let expected = format!("{name} is on device 1, the stream on device 0");
        assert!(error.is_operand() && error.to_string().ends_with(&expected), "{name}: {error}");
    };
    let logits = here.logits.clone();
    fn of<'a>(
        x: &'a CudaSlice<bf16>,
        out: &'a mut CudaSlice<bf16>,
        workspace: &'a mut CudaSlice<u8>,
        residual: &'a CudaSlice<bf16>,
    ) -> LayerOperands<'a> {
        LayerOperands::new(9, x, out, workspace).residual(residual)
    }
    refused("x", of(&there.x, &mut here.out, &mut here.workspace, &here.residual), &logits);
    refused("out", of(&here.x, &mut there.out, &mut here.workspace, &here.residual), &logits);
    refused("the workspace", of(&here.x, &mut here.out, &mut there.workspace, &here.residual), &logits);
    refused("residual", of(&here.x, &mut here.out, &mut here.workspace, &there.residual), &logits);
    refused("logits", of(&here.x, &mut here.out, &mut here.workspace, &here.residual), &there.logits);
    let (ids, weights) = (elsewhere.alloc_zeros::<i32>(9 * K).unwrap(), stream.alloc_zeros::<f32>(9 * K).unwrap());
    let operands = of(&here.x, &mut here.out, &mut here.workspace, &here.residual);
    let error = moe.forward_chosen(&**stream, operands, &ids, &weights).unwrap_err().to_string();
    assert!(error.ends_with("ids is on device 1, the stream on device 0"), "{error}");
    assert_eq!(bench.null.launches(), before);
}
