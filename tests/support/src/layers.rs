//! Layers as they fall: what no list has beside each other.

use fastrand::Rng;

use crate::seed;

/// How many there are.
const SEEDS: usize = 8;

/// The spellings of some that there are.
pub fn random(is_layer: impl Fn(&str) -> bool) -> Vec<String> {
    (seed()..).take(SEEDS).map(|seed| drawn(&mut Rng::with_seed(seed), &is_layer)).collect()
}

fn drawn(rng: &mut Rng, is_layer: impl Fn(&str) -> bool) -> String {
    let kind = rng.u32(..8);
    loop {
        let text = match kind {
            0 => linear(rng),
            1 | 2 => mlp(rng),
            _ => moe(rng),
        };
        if is_layer(&text) {
            return text;
        }
    }
}

fn one<'a>(rng: &mut Rng, of: &[&'a str]) -> &'a str {
    of[rng.usize(..of.len())]
}

/// A word in one of so many layers.
fn seldom(rng: &mut Rng, one_of: u32, word: impl Into<String>) -> String {
    if rng.u32(..one_of) == 0 { word.into() } else { String::new() }
}

fn format(rng: &mut Rng) -> &'static str {
    one(rng, &["f16", "bf16"])
}

fn extent(rng: &mut Rng, most: u32) -> u32 {
    16 * (1 + rng.u32(..most / 16))
}

/// The formats of weights and products.
fn formats(rng: &mut Rng) -> &'static str {
    one(rng, &["", "", ":mxfp4", ":e4m3", ":e4m3:expanded", ":nvfp4"])
}

fn bias(rng: &mut Rng) -> String {
    let bias = format!(":bias_{}", one(rng, &["f32", "f16", "bf16"]));
    seldom(rng, 3, bias)
}

fn linear(rng: &mut Rng) -> String {
    let (format, n, k) = (format(rng), extent(rng, 800), extent(rng, 1200));
    let row_scale = seldom(rng, 3, ":row_scale");
    format!("linear:{format}:n{n}:k{k}{row_scale}{}{}", bias(rng), formats(rng))
}

/// What an MLP and an expert have, and the words that come last.
fn expert(rng: &mut Rng) -> [String; 2] {
    let activation = one(rng, &["silu", "silu_clamp7", "gelu_tanh", "gelu", "swiglu_oai", "relu2", "none"]);
    let sizes = format!("{activation}:{}:h{}:i{}", format(rng), extent(rng, 600), extent(rng, 400));
    let words = format!("{}{}{}", bias(rng), seldom(rng, 5, ":ungated"), formats(rng));
    [sizes, words]
}

fn mlp(rng: &mut Rng) -> String {
    let [sizes, words] = expert(rng);
    format!("mlp.{sizes}{words}")
}

fn moe(rng: &mut Rng) -> String {
    let [sizes, words] = expert(rng);
    let experts = 1 + [8, 64, 300].map(|most| rng.u32(..most))[rng.usize(..3)];
    let k = if rng.u32(..4) == 0 { 1 } else { 1 + rng.u32(..experts.min(10)) };
    let scoring = one(rng, &["softmax", "sigmoid", "sigmoid_bias"]);
    let logits = one(rng, &["", "", ":f16", ":bf16"]);
    let groups = 2 << rng.u32(..3);
    let kept = format!(":g{groups}:keep{}", 1 + rng.u32(..groups));
    let kept = if experts.is_multiple_of(groups) { seldom(rng, 2, kept) } else { String::new() };
    let renormalised = seldom(rng, 2, ":renormalised");
    let first = rng.u32(..experts);
    let local = format!(":local{first}-{}", first + 1 + rng.u32(..experts - first));
    let local = seldom(rng, 4, local);
    let gate = seldom(rng, 3, ":shared_gate");
    let shared = format!(":shared{}{gate}", extent(rng, 300));
    let shared = seldom(rng, 3, shared);
    let (weighted, residual) = (seldom(rng, 4, ":weighted_inputs"), seldom(rng, 3, ":residual"));
    let route = format!("{scoring}{logits}:e{experts}:k{k}{kept}{renormalised}{local}");
    format!("moe.{sizes}:{route}{shared}{weighted}{words}{residual}")
}
