//! Prints the SHA-256 of what each NVFP4 weight of a checkpoint stands for, in f32 and little-endian, as one JSON document.
//!
//! `cargo run --release -p warpsmith-checkpoint --example digests DIR > digests.json`; `tests/read_back.py` compares that with
//! what compressed-tensors and ModelOpt read. −0 counts as 0: they differ in that.

use std::io::Write;

use serde_json::{Map, json};
use sha2::{Digest, Sha256};
use warpsmith::{Error, Result};
use warpsmith_checkpoint::{Checkpoint, Module, Storage};

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os().nth(1).ok_or("usage: digests DIR")?;
    // SAFETY: nobody changes these files while this runs.
    let model = unsafe { Checkpoint::map(folder)? };
    let mut weights = Map::new();
    // Tables are no layers.
    for name in model.modules().iter().filter(|name| !name.contains("embed")) {
        add(&model, name, &mut weights)?;
    }
    let text = serde_json::to_string_pretty(&json!({ "weights": weights }))?;
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

fn add(model: &Checkpoint, name: &str, weights: &mut Map<String, serde_json::Value>) -> Result<()> {
    let module = model.module(name)?;
    let products = match &module {
        Module::Linear(product) => vec![product],
        Module::Mlp(mlp) => mlp.gate().into_iter().chain([mlp.up(), mlp.down()]).collect(),
        Module::Moe(moe) => {
            let mlps = moe.experts().iter().chain(moe.shared());
            mlps.flat_map(|mlp| mlp.gate().into_iter().chain([mlp.up(), mlp.down()])).collect()
        }
        _ => return Ok(()),
    };
    let all = products.into_iter().flat_map(|product| product.parts());
    for weight in all.filter(|weight| weight.storage() == Storage::Nvfp4) {
        let mut digest = Sha256::new();
        for row in 0..weight.rows() {
            weight.dequantised(row)?.into_iter().for_each(|value| digest.update((value + 0.0).to_le_bytes()));
        }
        let digest: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let about = json!({"shape": [weight.rows(), weight.columns()], "sha256_plus_zero": digest});
        weights.insert(weight.name().to_owned(), about);
    }
    Ok::<(), Error>(())
}
