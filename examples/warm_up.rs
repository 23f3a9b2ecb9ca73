//! Closed worlds: every kernel that a manifest can need is made and loaded ahead; then nothing is compiled any more.
//!
//! ```text
//! cargo run --release --example warm_up
//! cargo run --release --example warm_up -- serving.toml
//! ```
//!
//! Run twice, the second time everything comes from the disk. Without a GPU it compiles for an H200 and loads nothing.

#![allow(clippy::print_stdout)]

use std::error::Error;

use warpsmith::cache::{KernelCache, Seal};
use warpsmith::engine::{Engine, Manifest, OnMiss, Rows, WarmUp};
use warpsmith::pick::Picker;
use warpsmith::run::Device;
use warpsmith::spec::{Activation, Arch, Problem};

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::open(0).inspect_err(|error| println!("no GPU used: {error}")).ok();
    let arch = device.as_ref().map_or(Arch::H200, |device| *device.arch());

    // What will be asked for: a file, or the two layers of an MLP for up to 512 tokens.
    let manifest = match std::env::args().nth(1) {
        Some(path) => Manifest::load(path)?,
        None => {
            let rows = Rows::new(1..=512)?;
            let gate_up = Problem::dual_gemm(Activation::Silu).n(1536).k(2048).native(&arch);
            let down = Problem::gemm().n(2048).k(1536).native(&arch);
            Manifest::new().with(&gate_up, &rows).with(&down, &rows)
        }
    };

    let cache = KernelCache::builder().install_if_missing().build();
    let Some(device) = device else {
        let report = WarmUp::new().run(&cache, &Picker::new(&arch.to_string(), &arch), &manifest);
        println!("{report}");
        return if report.is_complete() { Ok(()) } else { Err("a kernel is not there".into()) };
    };
    let engine = Engine::with_cache(&device, cache);
    let report = engine.warm_up(&manifest);
    println!("{report}");
    if !report.is_complete() {
        return Err("a kernel is not there".into());
    }

    // From here on a compile is a mistake: it is logged and counted.
    engine.seal(Seal::Warn);
    let before = engine.stats().cache.compiles;
    for (problem, rows) in manifest.problems() {
        for m in rows.ranges().flat_map(|range| [*range.start(), *range.end()]) {
            let selected = engine.kernel_or(problem, m, OnMiss::Error)?;
            println!("{problem}, m = {m}: {}", selected.kernel().spec().variant());
        }
    }
    println!("compiled since: {}", engine.stats().cache.compiles - before);
    Ok(())
}
