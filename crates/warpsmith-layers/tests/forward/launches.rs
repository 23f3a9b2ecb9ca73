//! Which launches a forward is, and what they are given.

use cudarc::driver::DevicePtr;
use half::{bf16, f16};
use warpsmith::engine::Plan;
use warpsmith::run::MemoryMut;
use warpsmith_layers::{GatedMlp, LayerOperands, Linear, LinearConfig, MlpConfig, Moe, MoeConfig, MoeWeights, Step};

use crate::scene::{Bench, Buffers, EXPERTS, HIDDEN, K, MOE, TOKENS, passes};

#[test]
fn a_forward_is_its_launches_in_their_order() {
    let bench = Bench::new();
    let (moe, stream) = (bench.moe(), &bench.stream);
    let mut buffers = Buffers::new(stream, moe.workspace_bytes(TOKENS));
    let logits = buffers.logits.clone();
    bench.null.watch(true);
    for tokens in [0, 1, 8, 9, 17, 256, 257, 512, 513, 1024, TOKENS] {
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
                Step::Route => assert_eq!(launches, if tokens <= 512 { 1 } else { 2 }),
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
