//! Mutants of the kernel that is a whole layer of few tokens: with one thing wrong, the oracle refuses what it gives.

use std::sync::Arc;

use half::bf16;
use warpsmith::build::Built;
use warpsmith::internal::build::{Header, Simt, Source, compile};
use warpsmith::internal::run::{ExpertsKernel, ExpertsOperands, experts};
use warpsmith::run::{PreparedWeights, Weights};
use warpsmith_layers::LayerConfig;

use crate::{Bench, LIMIT, Layer, text};

/// Without a shared expert or a residual; tokens in bf16. Several slices a block, and blocks without any.
const LAYER: &str = "moe.silu:bf16:h256:i192:softmax:e60:k4:renormalised";
const TOKENS: u32 = 7;

/// What is wrong, and which text becomes which. None can hang, and none reads or writes where nothing of its own is.
pub(crate) const MUTANTS: &[(&str, &str, &str)] = &[
    ("a token without its rows", "lists.row[hit][token] = thread;", "if (token != 1) lists.row[hit][token] = thread;"),
    ("the weight of the neighbour", "lists.weight[hit][lane % 4 * 2 + i % 2]", "lists.weight[hit][lane % 4 * 2]"),
    ("no wait for h", "ld_acquire_gpu(params.state + 1) < numbers; turn++", "ld_acquire_gpu(params.state + 1) < 1; turn++"),
    ("two experts exchanged", "lists.hit[hit] = expert;", "lists.hit[hit] = expert ^ 1;"),
    ("the factor of up for the gate", "activate(lists.alpha[0][expert]", "activate(lists.alpha[1][expert]"),
    ("no factor of down", "const float alpha = lists.alpha[2][lists.hit[hit]];", "const float alpha = lists.alpha[2][0];"),
    ("halves of a step of h in one place", "inside / 8 * 2 + column % 2", "column % 2"),
    ("the lower half of a step of x", "token * 64 + step % 2 * 8 + upper * 4)", "token * 64 + step % 2 * 8)"),
    (
        "scales of the first quarter",
        "scales = 2048 + quarter * (SLICE_SCALES - BLOCK_CODES);",
        "scales = 2048 - quarter * BLOCK_CODES;",
    ),
    ("a block of down left out", "const int end = min(at + run, all);", "const int end = min(at + run, all - 1);"),
    ("a warp's sums left out", "for (int warp = 0; warp < COUNT; warp++) {", "for (int warp = 1; warp < COUNT; warp++) {"),
    ("the first sums of two", "sums[0][i] += sums[1][i];", "sums[0][i] += 0.f;"),
    ("the first token's x for all", "min(lane / 4, tokens - 1) * 64", "0 * 64"),
];

/// Every mutant finds its place in today's text. Needs no GPU.
pub(crate) fn are_up_to_date() -> Result<(), String> {
    MUTANTS.iter().try_for_each(|(name, from, to)| changed(simt()?, name, from, to).map(drop))
}

fn simt() -> Result<Simt, String> {
    let config: LayerConfig = LAYER.parse().map_err(text)?;
    let LayerConfig::Moe(config) = config else { return Err("a layer of experts".to_owned()) };
    let experts = config.few_tokens(&warpsmith::spec::Arch::H100);
    experts.first().map(|experts| Simt::from(*experts)).ok_or_else(|| "no such kernel".to_owned())
}

fn changed(of: Simt, name: &str, from: &str, to: &str) -> Result<Source, String> {
    let source = of.render().map_err(text)?;
    if !source.text().contains(from) {
        return Err(format!("{name}: `{from}` stands nowhere"));
    }
    let headers: Vec<Header> = source.headers().to_vec();
    let changed = source.text().replace(from, to);
    Ok(Source::new(source.name(), changed, headers.leak(), source.entries().to_vec()))
}

/// With nothing wrong it is right, then each mutant is found.
pub(crate) fn refuses_mutants(bench: &Bench, _: &str) -> Result<(), String> {
    let _turn = bench.alone();
    let engine = bench.engine();
    let layer = Layer::new(bench, &engine, LAYER)?;
    let (stream, host) = (layer.stream, layer.tokens(TOKENS));
    let problems = layer.host.config().problems(LIMIT).map_err(text)?;
    let (mut prepared, mut alphas): (Vec<PreparedWeights>, Vec<Arc<_>>) = (Vec::new(), Vec::new());
    for (problem, which) in problems.iter().zip([&[0, 1][..], &[2]]) {
        let mut given = Vec::new();
        for nth in which {
            let (codes, scales, of_groups) = layer.host.given(stream, *nth).map_err(text)?;
            given.push((codes, scales));
            alphas.push(Arc::new(stream.clone_htod(of_groups).map_err(text)?));
        }
        match engine.weights(stream, &engine.native(problem), given).map_err(text)? {
            Weights::Prepared(weights) => prepared.push(weights),
            _ => return Err("weights that are not prepared".to_owned()),
        }
    }
    let x: Vec<bf16> = host.x().iter().map(|x| bf16::from_f32(*x)).collect();
    let (x, logits) = (stream.clone_htod(&x).map_err(text)?, stream.clone_htod(host.logits()).map_err(text)?);
    let rows = TOKENS as usize * 4;
    let launched = |kernel: &ExpertsKernel| -> Result<Vec<u8>, String> {
        let mut h = stream.clone_htod(&vec![bf16::NAN; rows * 192]).map_err(text)?;
        let mut out = stream.clone_htod(&vec![bf16::NAN; TOKENS as usize * 256]).map_err(text)?;
        let [gate, up, down] = &alphas[..] else { return Err("three products".to_owned()) };
        let alphas = [(&**gate).into(), (&**up).into(), (&**down).into()];
        let operands = ExpertsOperands::new(TOKENS, (&x, &mut out), [&prepared[0], &prepared[1]], &logits, &mut h);
        kernel.launch_dependent(stream, operands.alphas(alphas).scale(layer.host.scale())).map_err(text)?;
        warpsmith_tune::wait(stream, crate::WAIT).map_err(text)?;
        let out = stream.clone_dtoh(&out).map_err(text)?;
        Ok(out.iter().flat_map(|value| value.to_le_bytes()).collect())
    };
    let (which, columns): (Vec<usize>, Vec<usize>) = ((0..TOKENS as usize).collect(), (0..256).collect());
    let reference = layer.host.reference(&host, &which, &columns).map_err(text)?;
    let mut tokens = layer.upload(&host, LIMIT)?;
    let whole = layer.run(&mut tokens)?;
    let mut found = tokens.found(stream, &layer.device).map_err(text)?;
    let of = simt()?;
    let Simt::Experts(spec) = of else { return Err("no experts".to_owned()) };
    let toolchain = bench.cache.toolchain().map_err(text)?;
    for (name, from, to) in [("nothing", "namespace ws {", "namespace ws {")].iter().chain(MUTANTS) {
        let source = changed(of, name, from, to)?;
        let cubin = compile(toolchain, &source, bench.device.arch().target()).map_err(|error| format!("{error:?}"))?;
        // SAFETY: what mutants change is what they compute, in memory with margins around it.
        let built = unsafe { Built::unproven(of, Arc::new(cubin)) };
        let kernel = experts(&bench.device, stream, spec, &built).map_err(text)?;
        found.bytes = launched(&kernel)?;
        let is_right = found.check(&reference, &which, &columns);
        match (*name == "nothing", is_right) {
            (true, Ok(_)) if found.bytes == whole => {}
            (true, Ok(_)) => return Err("other bits than the layer's".to_owned()),
            (true, Err(why)) => return Err(format!("right, and refused: {why}")),
            (false, Ok(worst)) => return Err(format!("{name}: is right, by {worst} of a bound")),
            (false, Err(_)) => {}
        }
    }
    Ok(())
}
