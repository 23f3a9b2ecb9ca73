//! What layers refuse, before a launch.

use cudarc::driver::CudaSlice;
use half::{bf16, f16};
use warpsmith::cache::KernelCache;
use warpsmith::engine::Engine;
use warpsmith::format::Format;
use warpsmith::pick::{Picker, Policy};
use warpsmith::run::Device;
use warpsmith_layers::{
    GatedMlp, LayerOperands, Linear, LinearConfig, MlpConfig, MlpWeights, Moe, MoeConfig, MoeWeights, Quantised,
};

use crate::scene::{Bench, Buffers, HIDDEN, K, MOE, TOKENS, passes, small};

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
    assert!(
        error.is_operand() && error.to_string().ends_with("weights: alpha has 2 elements, 1 are needed"),
        "{error}"
    );
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
    // As many launches as it takes come before that which would refuse these.
    let operands = LayerOperands::new(9, x.slice(1..), &mut *out, &mut *workspace).residual(&*residual);
    refusal(moe.forward(stream, operands, &*logits));
    let operands = LayerOperands::new(9, &*x, out.slice_mut(1..), &mut *workspace).residual(&*residual);
    refusal(moe.forward(stream, operands, &*logits));
    let operands = LayerOperands::new(9, &*x, &mut *out, &mut *workspace).residual(residual.slice(1..));
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
        "which is not a multiple of 256 bytes",
        "the workspace has 256 bytes: one token needs",
        "x begins at",
        "out begins at",
        "residual begins at",
    ];
    assert!(found[8].contains("the workspace begins at"), "{}", found[8]);
    assert!(found[10..].iter().all(|found| found.ends_with("which is not a multiple of 16 bytes")), "{found:?}");
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
    let each = |groups: usize, factors: usize| {
        let of = |rows, k| bench.quantised(groups * rows, k).alpha(stream.alloc_zeros::<f32>(factors).unwrap());
        MlpWeights::gated(of(96, 64), of(96, 64), of(64, 96))
    };
    let (scaled, local) = (|factors| each(8, factors), |factors| each(4, factors));
    let all_biased = || {
        let of = |rows: usize, k| bench.quantised(8 * rows, k).bias(stream.alloc_zeros::<f16>(8 * rows).unwrap());
        MlpWeights::gated(of(96, 64), of(96, 64), of(64, 96))
    };
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
        (refusal(softmax, MoeWeights::new(scaled(3))), "gate: alpha has 3 elements, 1 or 8 are needed"),
        // Of a part of the experts: those that it has.
        (
            refusal(&format!("{softmax}:local4-8"), MoeWeights::new(local(8))),
            "gate: alpha has 8 elements, 1 or 4 are needed",
        ),
        (
            refusal(&format!("{softmax}:bias_f32"), MoeWeights::new(all_biased())),
            "gate: the bias is f16, the layer is for f32",
        ),
        (refusal(&format!("{softmax}:bias_f16"), MoeWeights::new(biased())), "up: a bias not given, the layer has it"),
    ] {
        assert!(found.contains(expected), "`{found}`, not `{expected}`");
    }
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
