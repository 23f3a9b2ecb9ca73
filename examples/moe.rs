//! A whole layer, from router logits to the sum of its experts' rows: checked, timed, each step beside its floor. Without a GPU
//! a small one, on the host.
//!
//! ```text
//! cargo run --release --example moe
//! cargo run --release --example moe -- --layer mixtral-8x7b --tokens 64
//! ```
//!
//! Ends non-zero if anything is wrong. `HostLayer` stands for a checkpoint here; what an engine writes is in `warpsmith_layers`'
//! documentation.

#![allow(clippy::print_stdout)]

use std::collections::BTreeSet;
use std::error::Error;

use warpsmith::cache::KernelCache;
use warpsmith::engine::Engine;
use warpsmith::run::Device;
use warpsmith_layers::{LayerConfig, named};
use warpsmith_tune::Timer;
use warpsmith_tune::layer::{DeviceTokens, HostLayer, HostTokens, Work};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What runs on the host.
const SMALL: &str = "moe.silu:bf16:h256:i96:softmax:e8:k2:renormalised:shared64:residual";
const LAYER: &str = "qwen3-30b";
const TOKENS: u32 = 32;

fn main() -> Result<()> {
    let (mut name, mut tokens) = (None, TOKENS);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{argument}: a value is missing"))?;
        match argument.as_str() {
            "--layer" => name = Some(value),
            "--tokens" => tokens = value.parse()?,
            _ => return Err(format!("{argument}: expected --layer NAME or --tokens NUMBER").into()),
        }
    }
    match Device::count() {
        Ok(1..) => on_device(&config(name.as_deref().unwrap_or(LAYER))?, tokens),
        Ok(0) => on_host(&config(name.as_deref().unwrap_or(SMALL))?, tokens.min(8)),
        Err(error) if error.is_missing_library() => on_host(&config(name.as_deref().unwrap_or(SMALL))?, tokens.min(8)),
        Err(error) => Err(error.into()),
    }
}

/// By its name or its spelling.
fn config(text: &str) -> Result<LayerConfig> {
    Ok(named(text).map_or_else(|| text.parse(), Ok)?)
}

fn on_device(config: &LayerConfig, tokens: u32) -> Result<()> {
    let device = Device::open(0)?;
    // SAFETY: the one stream below is the only one in this process. (Capturing and tracking events do not go together.)
    unsafe { device.context().disable_event_tracking() };
    let stream = device.context().new_stream()?;
    let engine = Engine::with_cache(&device, KernelCache::builder().install_if_missing().build());
    println!("{device}\n{config}, {tokens} tokens");

    let host = HostLayer::random(config, 1);
    let layer = host.upload(&engine, &stream, tokens)?;
    let given = HostTokens::random(config, tokens, 0.0, 2);
    let mut room = DeviceTokens::new(&stream, &layer, &given, layer.workspace_bytes(tokens))?;
    layer.forward(&stream, &mut room, None)?;

    // Every 64th column of the first and the last token, against the oracle.
    let which: BTreeSet<usize> = [0, given.count().saturating_sub(1)].into();
    let which: Vec<usize> = which.into_iter().filter(|token| *token < given.count()).collect();
    let columns: Vec<usize> = (0..given.columns()[1]).step_by(64).collect();
    let reference = host.reference(&given, &which, &columns)?;
    let worst = room.found(&stream, &layer)?.check(&reference, &which, &columns)?;
    println!(
        "right: {} elements within their bounds, the worst at {worst:.2} of its own\n",
        reference.elements().len()
    );

    let (ids, _) = host.chosen(&given)?;
    let hit = ids.into_iter().collect::<BTreeSet<_>>().len().max(1) as u32;
    let timer = Timer::new(&stream)?;
    let mut line = |name: &str, only| -> Result<f64> {
        let us = timer.time(1, |_| layer.forward(&stream, &mut room, only))?.median_us;
        let floor = Work::of(config, tokens, hit, only).floor_us(device.arch());
        println!("{name:>8} {us:>9.2} us, floor {floor:>9.2} us, {:>4.0} %", 100.0 * floor / us);
        Ok(us)
    };
    let (whole, mut alone) = (line("layer", None)?, 0.0);
    for step in layer.steps(tokens) {
        alone += line(&format!("{step:?}"), Some(step))?;
    }
    if alone > 0.0 {
        println!("the layer takes {:.3} of its steps alone", whole / alone);
    }
    println!(
        "\n{hit} experts hit; weights that fit stay in the L2 cache here, which `warpsmith bench --layer` prevents"
    );
    Ok(())
}

/// What comes out by the oracle; each token alone gives what it gives among others.
fn on_host(config: &LayerConfig, tokens: u32) -> Result<()> {
    println!("no GPU: {config}, {tokens} tokens, on the host");
    let host = HostLayer::random(config, 1);
    let given = HostTokens::random(config, tokens, 0.0, 2);
    let all: Vec<usize> = (0..given.count()).collect();
    let columns: Vec<usize> = (0..given.columns()[1]).collect();
    let together = host.reference(&given, &all, &columns)?;
    for token in all {
        let alone = host.reference(&given, &[token], &columns)?;
        let among = &together.elements()[token * columns.len()..][..columns.len()];
        let is_useful = among.iter().all(|element| element.bound.is_finite() && element.bound < 1.0);
        if alone.elements() != among || !is_useful {
            return Err(format!("token {token}: alone it gives something else, or nothing certain").into());
        }
        let first: Vec<_> = among.iter().take(4).map(|e| format!("{:+.4} ± {:.4}", e.value, e.bound)).collect();
        println!("token {token}: {} …", first.join(", "));
    }
    println!("right: every token gives alone what it gives among others");
    Ok(())
}
