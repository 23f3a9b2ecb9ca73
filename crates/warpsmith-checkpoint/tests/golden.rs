//! Checkpoints that others have written, against what others read in them (`tests/fixtures/make.py` has made both).

#![allow(clippy::unwrap_used, clippy::panic)] // helpers outside `#[test]` functions

mod common;

use std::fs;

use common::map;
use serde_json::Value;
use sha2::{Digest, Sha256};
use warpsmith::format::Format;
use warpsmith_checkpoint::{Architecture, Checkpoint, Module, Product};
use warpsmith_testing::checkpoints::fixtures;

/// A matrix by its name; `[expert]` behind that of a stack.
fn dequantised(model: &Checkpoint, name: &str) -> Vec<f32> {
    let of = |product: &Product<'_>| product.dequantised().unwrap();
    let Some((stack, expert)) = name.strip_suffix(']').and_then(|name| name.split_once('[')) else {
        let Module::Linear(linear) = model.module(name).unwrap() else { panic!("{name}: no linear layer") };
        return of(&linear);
    };
    let (module, product) = stack.split_once(".experts.").unwrap();
    let Module::Moe(moe) = model.module(module).unwrap() else { panic!("{module}: no experts") };
    let expert = &moe.experts()[expert.parse::<usize>().unwrap()];
    if product == "down_proj" {
        return of(expert.down());
    }
    let (gate, up) = (of(expert.gate().unwrap()), of(expert.up()));
    if model.config().architecture() != Architecture::GptOss {
        return [gate, up].concat();
    }
    let rows = |values: &[f32]| values.chunks(expert.hidden_size()).map(<[f32]>::to_vec).collect::<Vec<_>>();
    rows(&gate).into_iter().zip(rows(&up)).flat_map(|(gate, up)| [gate, up].concat()).collect()
}

/// Of the bits, where −0 is 0: others differ in what the code of −0 is.
fn sha256(values: &[f32]) -> String {
    let bytes: Vec<u8> = values.iter().flat_map(|value| (value + 0.0).to_le_bytes()).collect();
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Every weight has the bits that the code of its format gives.
#[test]
fn weights_are_those_that_others_read() {
    for folder in fixtures() {
        let model = map(&folder).unwrap();
        let golden: Value = serde_json::from_slice(&fs::read(folder.join("golden.json")).unwrap()).unwrap();
        let weights = golden["weights"].as_object().unwrap();
        assert!(!weights.is_empty(), "{}", folder.display());
        for (name, expected) in weights {
            let found = dequantised(&model, name);
            let elements: u64 =
                expected["shape"].as_array().unwrap().iter().map(|extent| extent.as_u64().unwrap()).product();
            assert_eq!(found.len() as u64, elements, "{}: {name}", folder.display());
            assert_eq!(sha256(&found), expected["sha256_plus_zero"].as_str().unwrap(), "{}: {name}", folder.display());
        }
    }
}

/// Every module is found, listed, and a layer or known not to be one.
#[test]
fn modules_are_layers() {
    for folder in fixtures() {
        let model = map(&folder).unwrap();
        let golden: Value = serde_json::from_slice(&fs::read(folder.join("golden.json")).unwrap()).unwrap();
        for (name, about) in golden["modules"].as_object().unwrap() {
            let module = model.module(name).unwrap();
            let kind = match &module {
                Module::Linear(_) => "linear",
                Module::Mlp(_) => "mlp",
                _ => "moe",
            };
            assert_eq!(about["kind"], kind, "{}: {name}", folder.display());
            assert!(model.modules().contains(name), "{}: {name} of {:?}", folder.display(), model.modules());
            let layer = module.layer(Format::Bf16).unwrap();
            assert!(layer.problems(64).is_ok(), "{layer}");
        }
    }
}

/// All layers of a model, for a manifest: each once, with its modules.
#[test]
fn layers_of_a_model() {
    let of = |name: &str| {
        let folder = fixtures().into_iter().find(|path| path.ends_with(name)).unwrap();
        let layers = map(&folder).unwrap().layers(Format::Bf16).unwrap();
        let all: Vec<_> = layers.all.iter().map(|(layer, names)| (layer.to_string(), names.len())).collect();
        (all, layers.others.into_iter().map(|(name, why)| format!("{name}: {why}")).collect::<Vec<_>>())
    };
    let (all, others) = of("qwen3-moe-ct");
    let moe = "moe.silu:bf16:h64:i32:softmax:e8:k2:renormalised";
    assert!(all.iter().any(|(layer, count)| layer == moe && *count == 1), "{all:?}");
    assert!(others.is_empty(), "{others:?}");
    assert!(all.iter().any(|(layer, _)| layer.starts_with("linear:bf16:")), "{all:?}");
    // o_proj's columns are padded.
    assert!(all.iter().any(|(layer, _)| layer.ends_with(":k96")), "{all:?}");
    // What is plain is none.
    assert_eq!(of("mistral-bf16"), (vec![], vec![]));
    // A gate of the shared expert; weights that multiply what experts get.
    let (all, others) = of("qwen3-next-modelopt");
    assert!(all.len() == 1 && all[0].0.ends_with(":shared_gate") && others.is_empty(), "{all:?} {others:?}");
    let (all, _) = of("llama4-modelopt");
    assert!(all.iter().any(|(layer, _)| layer.ends_with(":weighted_inputs")), "{all:?}");
}
