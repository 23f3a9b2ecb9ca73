//! Layers as they fall: what no list has beside each other. `WARPSMITH_TEST_SEED` is the first of the seeds (default 0): another
//! one, other layers.

use std::sync::OnceLock;

use fastrand::Rng;
use warpsmith_layers::LayerConfig;

/// How many there are.
const SEEDS: u64 = 8;
/// Tokens of one.
pub const TOKENS_MAX: u32 = 300;

/// Their spellings.
pub fn layers() -> &'static [String] {
    static LAYERS: OnceLock<Vec<String>> = OnceLock::new();
    let first = || std::env::var("WARPSMITH_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let seeds = || (0..SEEDS).map(|nth| first() + nth);
    LAYERS.get_or_init(|| seeds().map(|seed| drawn(&mut Rng::with_seed(seed))).collect())
}

/// The spelling of one that there is.
fn drawn(rng: &mut Rng) -> String {
    let kind = rng.u32(..8);
    loop {
        let text = match kind {
            0 => linear(rng),
            1 | 2 => mlp(rng),
            _ => moe(rng),
        };
        let layer: Option<LayerConfig> = text.parse().ok();
        if layer.is_some_and(|layer| layer.problems(TOKENS_MAX).is_ok()) {
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
