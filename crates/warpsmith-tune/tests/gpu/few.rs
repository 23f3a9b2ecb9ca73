//! The kernel that is a whole layer of few tokens: right in the layers that have it, and with one thing wrong refused.

use cudarc::driver::CudaSlice;
use half::bf16;
use warpsmith::format::Format;
use warpsmith::internal::build::Simt;
use warpsmith::internal::run::{ExpertsKernel, ExpertsOperands, experts, first_place};
use warpsmith::run::{PreparedWeights, Weights};
use warpsmith::spec::Arch;
use warpsmith_layers::{LayerConfig, MoeConfig, Step};
use warpsmith_tune::layer::{DeviceTokens, HostLayer, HostTokens};
use warpsmith_tune::wait;

use crate::bench::{Bench, text};
use crate::small::Mutant;

const LIMIT: u32 = 8;
const WAIT: std::time::Duration = std::time::Duration::from_secs(10);

/// Several slices a block and blocks without any; K that warps do not share evenly, in steps of a block and of two; experts elsewhere;
/// a shared expert, a residual; products of e4m3 values, too.
pub const LAYERS: [&str; 7] = [
    MUTATED,
    MUTATED_E4M3,
    "moe.swiglu_oai:f16:h320:i320:softmax:f16:e8:k8:residual",
    "moe.silu:bf16:h256:i96:sigmoid_bias:e60:k8:g4:keep2:renormalised:local20-35:shared64:residual",
    "moe.silu:bf16:h320:i96:sigmoid_bias:e60:k8:g4:keep2:renormalised:local20-35:shared64:e4m3:residual",
    "moe.gelu:f16:h1088:i64:sigmoid:e5:k2:mxfp4",
    "moe.gelu_tanh:f16:h1088:i320:sigmoid:e5:k2:e4m3",
];

/// Without a shared expert or a residual; tokens in bf16.
const MUTATED: &str = "moe.silu:bf16:h256:i256:softmax:e60:k4:renormalised";
const MUTATED_E4M3: &str = "moe.silu:bf16:h256:i256:softmax:e60:k4:renormalised:e4m3";
const HIDDEN: usize = 256;
const ROW: usize = 256;
const K: usize = 4;
const TOKENS: u32 = 7;

fn config(layer: &str) -> Result<LayerConfig, String> {
    layer.parse().map_err(text)
}

/// Of so many tokens all are one launch, and every element is within its bound.
pub fn is_right(bench: &Bench, layer: &str) -> Result<(), String> {
    let (stream, host) = (&bench.stream, HostLayer::random(&config(layer)?, 0xFE3));
    // Before the device is one's own: others have it meanwhile.
    let counts = [1, 2, 5, 8].map(|count| (count, false));
    // Of dense tokens the bounds of e4m3 products are wide.
    let sparsely = is_e4m3(host.config()).then(|| counts.map(|(count, _)| (count, true)));
    let all = counts.into_iter().chain(sparsely.into_iter().flatten());
    let of_counts: Vec<_> = all
        .map(|(count, is_sparse)| {
            let dense = HostTokens::random(host.config(), count, 0.0, u64::from(count));
            let of_host = if is_sparse { dense.sparse(u64::from(count)) } else { dense };
            let [which, columns] = of_host.everything();
            let reference = host.reference(&of_host, &which, &columns);
            (count, of_host, which, columns, reference)
        })
        .collect();
    let _turn = bench.alone();
    let device = host.upload(&bench.engine(), stream, LIMIT).map_err(text)?;
    for (count, of_host, which, columns, reference) in of_counts {
        let reference = reference.map_err(text)?;
        if !device.steps(count).contains(&Step::Experts) {
            return Err(format!("{count} tokens are several launches"));
        }
        let tokens = DeviceTokens::new(stream, &device, &of_host, device.workspace_bytes(count));
        let mut tokens = tokens.map_err(text)?;
        let (ids, weights) = host.chosen(&of_host).map_err(text)?;
        let (ids, weights) = (stream.clone_htod(&ids).map_err(text)?, stream.clone_htod(&weights).map_err(text)?);
        let mut result = |by_ids: bool| {
            let put = match by_ids {
                true => device.forward_chosen(stream, &mut tokens, &ids, &weights),
                false => device.forward(stream, &mut tokens, None),
            };
            put.map_err(text)?;
            wait(stream, WAIT).map_err(text)?;
            tokens.found(stream, &device).map_err(text)
        };
        let found = result(false)?;
        let worst = found.check(&reference, &which, &columns).map_err(|why| format!("{count} tokens: {why}"))?;
        if worst == 0.0 {
            return Err("nothing is off at all".to_owned());
        }
        // By given ids in the same workspace, and by logits again: a layer's kernels count in the same place.
        for turn in 0..2 {
            let at = |why| format!("{count} tokens, given ids, turn {turn}: {why}");
            result(true)?.check(&reference, &which, &columns).map_err(at)?;
            if result(false)?.bytes != found.bytes {
                return Err(format!("{count} tokens, turn {turn}: other bits behind given ids"));
            }
        }
    }
    Ok(())
}

fn is_e4m3(config: &LayerConfig) -> bool {
    config.rounded() == Some(Format::E4m3)
}

/// The layer that a kernel is of.
fn layer_of(kernel: &ExpertsKernel) -> Result<LayerConfig, String> {
    config(if kernel.experts().is_e4m3() { MUTATED_E4M3 } else { MUTATED })
}

fn simt(layer: &str) -> Simt {
    let config: MoeConfig = layer.parse().unwrap();
    config.few_tokens(&Arch::H100)[0].into()
}

/// None can hang, and none reads or writes where nothing of its own is.
pub fn mutants() -> Vec<Mutant> {
    let mutant = Mutant::of(simt(MUTATED));
    vec![
        mutant("the first row for a token", "h + max(row, 0) *", "h + max(lane / 4 == 1 ? 0 : row, 0) *"),
        mutant("the first token's sums", "tokens * 64 + token * 64 + pair", "tokens * 64 + pair"),
        mutant("the neighbour's weight", "lists.weight[hit][lane % 4 * 2 + i % 2]", "lists.weight[hit][lane % 4 * 2]"),
        mutant("two experts exchanged", "u32(local) | 1u <<", "u32(local ^ 1) | 1u <<"),
        mutant("the factor of up for the gate", "activate(lists.alpha[0][expert]", "activate(lists.alpha[1][expert]"),
        mutant("another expert's factor", "lists.alpha[2][lists.hit[hit].expert];", "lists.alpha[2][0];"),
        mutant("halves of a step of h exchanged", "inside / 8 * 2 + column", "(1 - inside / 8) * 2 + column"),
        mutant("the lower half of a step of x", "token * 64 + step % 2 * 8 + upper * 4)", "token * 64 + step % 2 * 8)"),
        mutant(
            "scales of the first quarter",
            "scales = 2048 + quarter * (SLICE_SCALES - BLOCK_CODES)",
            "scales = 2048 - quarter * BLOCK_CODES",
        ),
        mutant("scales of the first block of two", "at / SCALES_ROOM * BLOCK_BYTES", "0"),
        mutant("the first block of two twice", "codes + block * BLOCK_BYTES", "codes"),
        mutant("a block of down left out", "end = min(at + run, all);", "end = min(at + run, all - 1);"),
        mutant("a warp's sums left out", "warp = 0; warp < COUNT; warp++", "warp = 1; warp < COUNT; warp++"),
        mutant("the first sums of two", "sums[0][i] += sums[1][i];", "sums[0][i] += 0.f;"),
        mutant("the first token's x for all", "min(lane / 4, tokens - 1) * 64", "0 * 64"),
        mutant("weights not renormalised", "RENORMALISE = true;", "RENORMALISE = false;"),
        mutant(
            "the factor of weights left out",
            "params.bias, lists.ids, lists.weights, params.scale}",
            "params.bias, lists.ids, lists.weights, 0.5f}",
        ),
    ]
}

/// Of e4m3 products. None can hang, either.
pub fn mutants_of_e4m3() -> Vec<Mutant> {
    let mutant = Mutant::of(simt(MUTATED_E4M3));
    vec![
        mutant("halves of a lane's columns exchanged", "inside / 8 * 32 + c * 8", "(1 - inside / 8) * 32 + c * 8"),
        mutant(
            "x in the order of 16-bit products",
            "piece % 2 * 512 + token * 64 + piece / 2 * 16",
            "piece / 4 * 512 + token * 64 + piece % 4 * 16",
        ),
        mutant("the first token's factor", "factors().of_x[token].factor", "factors().of_x[0].factor"),
        mutant("the factor of h left out", "row >= 0 ? factors().of_h[row].factor", "row >= 0 ? 1.f"),
        mutant("the neighbour row's factor of h", "factors().of_h[i / PIECES]", "factors().of_h[i / PIECES ^ 1]"),
        mutant(
            "a factor of h that is too small",
            "factor_of(factors().largest_of_h[row])",
            "factor_of(factors().largest_of_h[row] - 0x01000000u)",
        ),
        mutant(
            "an eighth's largest of x",
            "if (is_inside && lane_index() % 8 == 0) atomicMax",
            "if (is_inside && lane_index() == 0) atomicMax",
        ),
        mutant(
            "factors of the gate's rows for up",
            "up_units_of(params, expert, column) + INTERMEDIATE))",
            "up_units_of(params, expert, column)))",
        ),
        mutant(
            "factors of the first expert's rows",
            "static_cast<u64>(expert) * HIDDEN",
            "static_cast<u64>(0) * HIDDEN",
        ),
        mutant("the same factor for both columns", "columns[i] = of_columns[8 * i];", "columns[i] = of_columns[0];"),
        mutant(
            "h that is not rounded",
            "st_shared_16(at, words.x",
            "if (threadIdx.x > THREADS) st_shared_16(at, words.x",
        ),
        mutant(
            "four of a lane's eight twice",
            "const u32 low = a[2 * four], high = a[2 * four + 1];",
            "const u32 low = a[0], high = a[1];",
        ),
        mutant("the scale of the other row", "block + BLOCK_CODES + lane * 2 + 1)", "block + BLOCK_CODES + lane * 2)"),
        mutant("the next byte's entry", "static_cast<signed char>(i)", "static_cast<signed char>(i + 1)"),
        mutant(
            "a factor of x that is too small",
            "factor_of(factors().largest_of_x[token])",
            "factor_of(factors().largest_of_x[token] - 0x01000000u)",
        ),
    ]
}

/// What a GPU may let pass, as blocks go as fast as each other.
pub fn races() -> Vec<Mutant> {
    let mutant = Mutant::of(simt(MUTATED));
    let e4m3 = Mutant::of(simt(MUTATED_E4M3));
    let (waits, never) = ("if (begun >= numbers && done >= enough) return -1;", "return -1;");
    vec![
        mutant("no wait for h", waits, never).with(&[("exchange(params.cells, ", "exchange(nullptr, ")]),
        mutant("cells that are not there yet", waits, never).with(&[("while (!are_there);", "while (false);")]),
        e4m3("x that is not rounded yet", "  __syncthreads();\n}\n\n// All rows of h", "}\n\n// All rows of h"),
        e4m3("h that is not rounded yet", "  __syncthreads();\n}\n\n// Products", "}\n\n// Products"),
    ]
}

/// What only the launch after the next one would notice.
pub fn left_over() -> Vec<Mutant> {
    let mutant = Mutant::of(simt(MUTATED));
    vec![
        mutant("cells that are not cleared", "exchange.clear(share.number, share.numbers);", ""),
        mutant("always the same half", "params.state[2] = 1 - lists.half;", "params.state[2] = lists.half;"),
        mutant("half of the cells not cleared", "i < BYTES / 16;", "i < BYTES / 32;"),
        mutant("counts of a launch that stay", "params.state[0] = params.state[1] = 0;", "params.state[0] = 0;"),
        mutant(
            "a block that looks no more and does not say so",
            "if (thread == 0) counted =",
            "if (thread == 0 && blockIdx.x > 0) counted =",
        ),
    ]
}

fn kernel_of(bench: &Bench, mutant: &Mutant) -> Result<ExpertsKernel, String> {
    let Simt::Experts(spec) = mutant.kernel() else { return Err("no experts".to_owned()) };
    experts(&bench.device, &bench.stream, spec, &mutant.built(bench)?).map_err(text)
}

pub fn is_killed(bench: &Bench, mutant: &Mutant) -> Result<(), String> {
    let kernel = kernel_of(bench, mutant)?;
    let _turn = bench.alone();
    match is_refused(bench, &kernel)? {
        true => Ok(()),
        false => Err("nothing is found wrong".to_owned()),
    }
}

fn host(config: &LayerConfig) -> HostLayer {
    HostLayer::random(config, 0xFE3)
}

/// Of e4m3 products few elements are not 0: the bounds of others are wide.
fn tokens(config: &LayerConfig) -> HostTokens {
    let tokens = HostTokens::random(config, TOKENS, 0.0, 7);
    if is_e4m3(config) { tokens.sparse(7) } else { tokens }
}

/// Memory for h, with NaNs.
fn room_for_h(bench: &Bench) -> Result<CudaSlice<bf16>, String> {
    bench.stream.clone_htod(&[bf16::NAN; TOKENS as usize * K * ROW]).map_err(text)
}

/// What a kernel gives, where the factors of down's experts are changed.
fn result_of(bench: &Bench, kernel: &ExpertsKernel, change: impl Fn(&mut [f32])) -> Result<Vec<bf16>, String> {
    result_with(bench, kernel, &mut room_for_h(bench)?, change)
}

fn result_with(
    bench: &Bench,
    kernel: &ExpertsKernel,
    h: &mut CudaSlice<bf16>,
    change: impl Fn(&mut [f32]),
) -> Result<Vec<bf16>, String> {
    let (engine, stream, config) = (bench.engine(), &bench.stream, layer_of(kernel)?);
    let (host, tokens) = (host(&config), tokens(&config));
    let (mut prepared, mut alphas): (Vec<PreparedWeights>, Vec<_>) = (Vec::new(), Vec::new());
    for (problem, which) in config.problems(LIMIT).map_err(text)?.iter().zip([&[0, 1][..], &[2]]) {
        let mut given = Vec::new();
        for nth in which {
            let (codes, scales, of_groups) = host.given(stream, *nth).map_err(text)?;
            given.push((codes, scales));
            let mut of_groups = of_groups.to_vec();
            if *nth == 2 {
                change(&mut of_groups);
            }
            alphas.push(stream.clone_htod(&of_groups).map_err(text)?);
        }
        match engine.weights(stream, &engine.native(problem), given).map_err(text)? {
            Weights::Prepared(weights) => prepared.push(weights),
            _ => return Err("weights that are not prepared".to_owned()),
        }
    }
    let x: Vec<bf16> = tokens.x().iter().map(|x| bf16::from_f32(*x)).collect();
    let (x, logits) = (stream.clone_htod(&x).map_err(text)?, stream.clone_htod(tokens.logits()).map_err(text)?);
    let mut out = stream.clone_htod(&[bf16::NAN; TOKENS as usize * HIDDEN]).map_err(text)?;
    let operands = ExpertsOperands::new(TOKENS, (&x, &mut out), [&prepared[0], &prepared[1]], &logits, h);
    let operands = operands.alphas([(&alphas[0]).into(), (&alphas[1]).into(), (&alphas[2]).into()]);
    kernel.launch_dependent(stream, operands.scale(host.scale())).map_err(text)?;
    wait(stream, WAIT).map_err(text)?;
    stream.clone_dtoh(&out).map_err(text)
}

/// Whether the oracle refuses what a kernel gives.
fn is_refused(bench: &Bench, kernel: &ExpertsKernel) -> Result<bool, String> {
    let out = result_of(bench, kernel, |_| {})?;
    let (engine, stream, config) = (bench.engine(), &bench.stream, layer_of(kernel)?);
    let (host, tokens) = (host(&config), tokens(&config));
    let [which, columns] = tokens.everything();
    let reference = host.reference(&tokens, &which, &columns).map_err(text)?;
    let device = host.upload(&engine, stream, LIMIT).map_err(text)?;
    let made = DeviceTokens::new(stream, &device, &tokens, device.workspace_bytes(TOKENS)).map_err(text)?;
    let mut found = made.found(stream, &device).map_err(text)?;
    found.bytes = out.iter().flat_map(|value| value.to_le_bytes()).collect();
    Ok(found.check(&reference, &which, &columns).is_err())
}

/// What mutants must be, of each layer that there are such of.
pub const OF_MUTANTS: [&str; 2] = [MUTATED, MUTATED_E4M3];

/// Half by half, a launch writes every word of its rows, and leaves nothing of the launch before, nor anything counted.
pub fn nothing_is_left_over(bench: &Bench, layer: &str) -> Result<(), String> {
    is_left_over(bench, &nothing(layer))?.map_or(Ok(()), Err)
}

/// What is not as it should be in counters and cells, behind each of three launches.
pub fn is_left_over(bench: &Bench, mutant: &Mutant) -> Result<Option<String>, String> {
    let kernel = kernel_of(bench, mutant)?;
    let _turn = bench.alone();
    let mut h = room_for_h(bench)?;
    for launch in 0..3 {
        result_with(bench, &kernel, &mut h, |_| {})?;
        let (counters, halves) = first_place(&kernel, &bench.stream).map_err(text)?;
        if counters[..2] != [0, 0] {
            return Ok(Some(format!("launch {launch}: {counters:?} is counted when it has ended")));
        }
        let (written, next) = (&halves[launch % 2], &halves[1 - launch % 2]);
        let words = TOKENS as usize * K * ROW / 2;
        if written[..words].contains(&0) || written[words..].iter().any(|word| *word != 0) {
            return Ok(Some(format!("launch {launch}: not the rows that there are")));
        }
        if next.iter().any(|word| *word != 0) {
            return Ok(Some(format!("launch {launch}: cells of the next one are not 0")));
        }
    }
    Ok(None)
}

/// In more places than have cells, and again in each.
pub fn bits_do_not_depend_on_how_rows_are_exchanged(bench: &Bench, layer: &str) -> Result<(), String> {
    let kernel = kernel_of(bench, &nothing(layer))?;
    let _turn = bench.alone();
    let mut places = (0..6).map(|_| room_for_h(bench)).collect::<Result<Vec<_>, _>>()?;
    let first = result_of(bench, &kernel, |_| {})?;
    for turn in 0..3 {
        for (at, h) in places.iter_mut().enumerate() {
            if result_with(bench, &kernel, h, |_| {})? != first {
                return Err(format!("turn {turn} in place {at} differs"));
            }
        }
    }
    Ok(())
}

/// An expert whose factor is no number makes NaN of the tokens that chose it, and changes no bit of others.
pub fn a_factor_that_is_no_number_stays_with_its_tokens(bench: &Bench, layer: &str) -> Result<(), String> {
    let kernel = kernel_of(bench, &nothing(layer))?;
    let _turn = bench.alone();
    let config = layer_of(&kernel)?;
    let (ids, _) = host(&config).chosen(&tokens(&config)).map_err(text)?;
    let plain = result_of(bench, &kernel, |_| {})?;
    for (wrong, what) in [(ids[0], f32::NAN), (ids[K], f32::INFINITY)] {
        let found = result_of(bench, &kernel, |factors| factors[wrong as usize] = what)?;
        let rows = found.chunks(HIDDEN).zip(plain.chunks(HIDDEN));
        for (token, ((found, plain), ids)) in rows.zip(ids.chunks(K)).enumerate() {
            let is_right = match ids.contains(&wrong) {
                true => found.iter().all(|value| !value.is_finite()),
                false => found == plain,
            };
            if !is_right {
                return Err(format!("expert {wrong}'s factor {what}: token {token} is not what it should be"));
            }
        }
    }
    Ok(())
}

fn nothing(layer: &str) -> Mutant {
    Mutant::of(simt(layer))("nothing", "namespace ws {", "namespace ws {")
}

/// With nothing wrong it is not refused.
pub fn the_kernel_itself_is_right(bench: &Bench, layer: &str) -> Result<(), String> {
    match is_killed(bench, &nothing(layer)) {
        Ok(()) => Err("what is right is refused".to_owned()),
        Err(why) if why == "nothing is found wrong" => Ok(()),
        Err(why) => Err(why),
    }
}
