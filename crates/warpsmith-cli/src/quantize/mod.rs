//! Quantises checkpoints.

mod args;

use std::time::Instant;

use indicatif::{DecimalBytes, ProgressBar, ProgressStyle};
use serde_json::json;
use warpsmith::cache::KernelCache;
use warpsmith::engine::Engine;
use warpsmith::run::Device;
use warpsmith_checkpoint::{Quantise, Quantised, QuantisedWeight};

use crate::shared::{Result, document, say};
pub use args::Args;

/// Weights that are shown.
const SHOWN: usize = 10;

pub fn run(args: &Args) -> Result<bool> {
    let start = Instant::now();
    let mut how = Quantise::new().layout(args.layout).scales(args.scales).factors(args.factors);
    if let Some(threads) = args.threads {
        how = how.threads(threads.get());
    }
    how = args.exclude.iter().fold(how, |how, pattern| how.exclude(pattern));
    let engine = args.device.map(engine).transpose()?;
    let bar = bar();
    let told = |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    };
    // SAFETY: a folder has one run at a time; who changes a model meanwhile has no use for the result.
    let done = unsafe {
        match &engine {
            Some(engine) => how.run_on(engine, &args.from, &args.to, told),
            None => how.run(&args.from, &args.to, told),
        }
    };
    bar.finish_and_clear();
    let done = done?;
    show(&done)?;
    let seconds = start.elapsed().as_secs_f64();
    let device = engine.as_ref().map(|engine| engine.device().to_string());
    let by = device.as_deref().unwrap_or("the CPU");
    say!("{} written in {seconds:.1} s by {by}", args.to.display())?;
    let weight = |weight: &QuantisedWeight| {
        json!({
            "name": weight.name(),
            "rows": weight.rows(),
            "columns": weight.columns(),
            "error": weight.error(),
            "plain_error": weight.plain_error(),
        })
    };
    document(&json!({
        "from": args.from,
        "to": args.to,
        "layout": args.layout.to_string(),
        "scales": args.scales.to_string(),
        "factors": args.factors.to_string(),
        "device": device,
        "source_bytes": done.source_bytes(),
        "bytes": done.bytes(),
        "error": done.error(),
        "plain_error": done.plain_error(),
        "weights": done.weights().iter().map(weight).collect::<Vec<_>>(),
        "kept": done.kept(),
        "resumed": done.resumed(),
        "left": done.left(),
        "seconds": seconds,
    }))?;
    Ok(true)
}

/// On a GPU that is asked for.
fn engine(ordinal: usize) -> Result<Engine> {
    let asked = || format!("--device {ordinal} (without it the CPU quantises)");
    let device = Device::open(ordinal).map_err(|error| error.context(asked()))?;
    Ok(Engine::with_cache(&device, KernelCache::builder().install_if_missing().build()))
}

/// Those that lose the most, and all together.
fn show(done: &Quantised) -> Result<()> {
    let mut worst: Vec<_> = done.weights().iter().collect();
    worst.sort_by(|x, y| y.error().total_cmp(&x.error()));
    worst.truncate(SHOWN);
    let width = worst.iter().map(|weight| weight.name().len()).max().unwrap_or_default();
    say!("{:width$}  {:>13}  {:>8}  {:>8}", "relative error of the worst", "N×K", "this", "plain")?;
    for weight in worst {
        let shape = format!("{}×{}", weight.rows(), weight.columns());
        say!("{:width$}  {shape:>13}  {:>8.5}  {:>8.5}", weight.name(), weight.error(), weight.plain_error())?;
    }
    let all = format!("all {} weights", done.weights().len());
    say!("{all:width$}  {:>13}  {:>8.5}  {:>8.5}", "", done.error(), done.plain_error())?;
    let (before, after) = (DecimalBytes(done.source_bytes()), DecimalBytes(done.bytes()));
    say!("{before} became {after}; {} tensors are as they were", done.kept())?;
    if done.resumed() > 0 {
        say!("{} files of tensors were there already", done.resumed())?;
    }
    if !done.left().is_empty() {
        say!("not copied: {}", done.left().join(", "))?;
    }
    Ok(())
}

/// On stderr, over bytes.
fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} [{elapsed}, {eta} left]");
    let bar = ProgressBar::new(0);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
