//! Folders that are not what they should be: one sentence each, no panic, nothing read outside of a file.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers outside `#[test]` functions

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use common::{HIDDEN, INTERMEDIATE, MLP, Model, map, refusal};
use safetensors::Dtype;
use serde_json::json;
use warpsmith::format::Format;
use warpsmith_checkpoint::{Module, Product};

/// All that a model holds, dequantised.
fn read_all(dir: &Path) -> warpsmith::Result<usize> {
    let model = map(dir)?;
    let of = |product: &Product<'_>| product.dequantised().map(|values| values.len());
    let mut values = 0;
    for name in model.modules() {
        values += match model.module(&name)? {
            Module::Linear(linear) => of(&linear)?,
            Module::Mlp(mlp) => mlp.gate().map_or(Ok(0), of)? + of(mlp.up())? + of(mlp.down())?,
            _ => 0,
        };
    }
    Ok(values)
}

#[test]
fn files_that_are_not_there_or_not_whole() {
    let model = Model::llama();
    assert_eq!(read_all(model.write().path()).unwrap(), 3 * HIDDEN * INTERMEDIATE);
    assert_eq!(read_all(model.write_in_two().path()).unwrap(), 3 * HIDDEN * INTERMEDIATE);

    let dir = model.write();
    let file = dir.path().join("model.safetensors");
    let whole = fs::read(&file).unwrap();
    for length in [0, 7, 8, 100, whole.len() - 1] {
        fs::write(&file, &whole[..length]).unwrap();
        assert!(refusal(dir.path()).contains("model.safetensors: "), "{length}");
    }
    fs::write(&file, [&whole[..], &[0]].concat()).unwrap();
    assert!(refusal(dir.path()).contains("not a whole safetensors file"));
    fs::remove_file(&file).unwrap();
    assert!(refusal(dir.path()).ends_with("neither model.safetensors.index.json nor a .safetensors file is there"));
    fs::create_dir(&file).unwrap();
    assert!(refusal(dir.path()).ends_with("model.safetensors: not a file"));
    fs::remove_file(dir.path().join("config.json")).unwrap();
    assert!(refusal(dir.path()).ends_with("config.json is missing"));
    assert!(refusal(&dir.path().join("nowhere")).contains("nowhere"));
    for text in ["", "[]", "{", "{\"a\": 1e999}", &"[".repeat(100_000)] {
        fs::write(dir.path().join("config.json"), text).unwrap();
        assert!(refusal(dir.path()).contains("config.json"), "{text:.20}");
    }
    // The same tensor twice.
    let dir = model.write();
    fs::copy(dir.path().join("model.safetensors"), dir.path().join("other.safetensors")).unwrap();
    assert!(refusal(dir.path()).contains("is in model.safetensors and in other.safetensors"));
}

#[test]
fn links_are_followed_and_lead_somewhere() {
    // As a cache of downloads has them.
    let dir = Model::llama().write();
    let blob = tempfile::tempdir().unwrap();
    let file = dir.path().join("model.safetensors");
    fs::rename(&file, blob.path().join("0123")).unwrap();
    symlink(blob.path().join("0123"), &file).unwrap();
    assert!(read_all(dir.path()).is_ok());
    fs::remove_file(blob.path().join("0123")).unwrap();
    assert!(refusal(dir.path()).contains("model.safetensors: cannot be opened"));
    fs::remove_file(&file).unwrap();
    symlink(&file, &file).unwrap();
    assert!(refusal(dir.path()).contains("model.safetensors: cannot be opened"));
    fs::remove_file(&file).unwrap();
    symlink("/dev/zero", &file).unwrap();
    assert!(refusal(dir.path()).ends_with("model.safetensors: not a file"));
}

#[test]
fn an_index_that_is_wrong() {
    let dir = Model::llama().write_in_two();
    let path = dir.path().join("model.safetensors.index.json");
    let index: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let gate = format!("{MLP}.gate_proj.weight");
    let with = |file: serde_json::Value| {
        let mut index = index.clone();
        index["weight_map"][&gate] = file;
        fs::write(&path, index.to_string()).unwrap();
        refusal(dir.path())
    };
    assert!(with(json!("gone.safetensors")).contains("gone.safetensors: cannot be opened"));
    let other = index["weight_map"].as_object().unwrap().values().find(|file| **file != index["weight_map"][&gate]);
    assert!(with(other.unwrap().clone()).contains("which lacks it"));
    for file in ["../x.safetensors", "/etc/passwd", "..", "", "a\\b"] {
        assert!(with(json!(file)).contains("no file of this folder"), "{file}");
    }
    for file in ["config.json", "model.bin", "model.safetensors.index.json"] {
        assert!(with(json!(file)).ends_with(&format!("in {file:?}: not a .safetensors file")), "{file}");
    }
    assert!(with(json!(7)).contains("is no name"));
    fs::write(&path, "{}").unwrap();
    assert!(refusal(dir.path()).contains("`weight_map` is no object"));
}

#[test]
fn tensors_that_are_wrong() {
    let gate = format!("{MLP}.gate_proj");
    let (scale, factor) = (format!("{gate}.weight_scale"), format!("{gate}.weight_scale_2"));
    let weight = format!("{gate}.weight");
    let changed = |change: &dyn Fn(&mut Model)| {
        let mut model = Model::llama();
        change(&mut model);
        refusal(model.write().path())
    };
    for name in [&weight, &scale, &factor] {
        let text = changed(&|model| drop(model.tensors.remove(name)));
        assert!(
            text.contains(&format!("module `{MLP}`")) && text.contains(&format!("tensor `{name}` is missing")),
            "{text}"
        );
    }
    let put = |name: &str, dtype: Dtype, shape: &[usize], bytes: usize| {
        changed(&|model| model.put(name, dtype, shape, vec![0; bytes]))
    };
    let cases = [
        (put(&scale, Dtype::F16, &[32, 4], 256), "is F16, expected F8_E4M3 or U8"),
        (put(&scale, Dtype::F8_E4M3, &[32, 3], 96), "has shape [32, 3], expected [32, 4]"),
        (put(&weight, Dtype::I32, &[32, 8], 1024), "is I32, expected F16 or BF16 or F32"),
        (put(&weight, Dtype::U8, &[1024], 1024), "has shape [1024], expected a matrix"),
        (put(&weight, Dtype::U8, &[32, 31], 992), "has K = 62, expected a multiple of 16"),
        (put(&weight, Dtype::BF16, &[32, 64], 4096), "is bf16, the configuration says NVFP4"),
        (put(&factor, Dtype::F32, &[2], 8), "has 2 elements, expected 1"),
        (put(&factor, Dtype::F16, &[1], 2), "is F16, expected F32"),
    ];
    for (text, expected) in cases {
        assert!(text.contains(expected), "{text}");
    }
    let text = changed(&|model| model.put(&factor, Dtype::F32, &[], f32::INFINITY.to_le_bytes().to_vec()));
    assert!(text.contains("its factor is inf, it must be finite"), "{text}");
    let text = changed(&|model| model.nvfp4(&gate, 48, HIDDEN, 1.0, 0));
    assert!(text.contains("is [48, 64], the configuration says [32, 64]"), "{text}");
    // A NaN among the scales is found when they are read.
    let mut model = Model::llama();
    model.tensors.get_mut(&scale).unwrap().2[4 * 3 + 2] = 0x7F;
    let dir = model.write();
    let text = read_all(dir.path()).unwrap_err().to_string();
    assert!(text.contains(&format!("weight `{gate}`: the scale of row 3, block 2 is NaN")), "{text}");
}

/// No bytes bound the other extents, which nobody may count through.
#[test]
fn matrices_and_stacks_without_elements() {
    const ROWS: usize = 1 << 12;
    let refused = |config: serde_json::Value, tensors: &[(&str, Dtype, &[usize])], empty: &str| {
        let mut model = Model { config, tensors: Default::default() };
        for (name, dtype, shape) in tensors {
            let bytes = shape.iter().product::<usize>() * dtype.bitsize() / 8;
            model.put(name, *dtype, shape, vec![0; bytes]);
        }
        let text = map(model.write().path()).and_then(|model| model.layers(Format::Bf16)).unwrap_err().to_string();
        assert!(text.contains(empty) && text.ends_with("expected extents of at least 1"), "{text}");
    };
    let mut llama = Model::llama().config;
    llama["quantization_config"] = json!(null);
    let of = "model.layers.0.self_attn.o_proj";
    let [weight, packed, scale] = ["weight", "weight_packed", "weight_scale"].map(|end| format!("{of}.{end}"));
    let shape = format!("[{ROWS}, 0]");
    let text = format!("tensor `{packed}` has shape {shape}");
    refused(llama.clone(), &[(&packed, Dtype::U8, &[ROWS, 0]), (&scale, Dtype::U8, &[ROWS, 0])], &text);
    let text = format!("tensor `{weight}` has shape {shape}");
    refused(llama.clone(), &[(&weight, Dtype::BF16, &[ROWS, 0])], &text);
    refused(llama, &[(&weight, Dtype::F8_E4M3, &[ROWS, 0]), (&scale, Dtype::F32, &[1])], &text);

    let experts = json!({
        "architectures": ["GptOssForCausalLM"], "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE,
        "num_local_experts": 4, "num_experts_per_tok": 2,
    });
    let up = format!("{MLP}.experts.gate_up_proj");
    let [blocks, scales] = ["_blocks", "_scales"].map(|end| format!("{up}{end}"));
    let text = format!("tensor `{blocks}` has shape [4, {ROWS}, 0, 16]");
    let tensors: [(&str, _, &[_]); 2] = [(&blocks, Dtype::U8, &[4, ROWS, 0, 16]), (&scales, Dtype::U8, &[4, ROWS, 0])];
    refused(experts.clone(), &tensors, &text);
    for dtype in [Dtype::BF16, Dtype::U8] {
        let text = format!("tensor `{up}` has shape [{ROWS}, 0, {HIDDEN}]");
        refused(experts.clone(), &[(&up, dtype, &[ROWS, 0, HIDDEN])], &text);
    }
}

/// A layer has one format for the biases of all its experts.
#[test]
fn experts_whose_biases_are_mixed() {
    let experts = |biases: [Option<Dtype>; 4]| {
        let mut model = Model::llama();
        model.config = json!({
            "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": HIDDEN, "moe_intermediate_size": INTERMEDIATE,
            "num_experts": 4, "num_experts_per_tok": 2,
        });
        model.tensors.clear();
        for (expert, bias) in biases.into_iter().enumerate() {
            for (part, n, k) in [
                ("gate_proj", INTERMEDIATE, HIDDEN),
                ("up_proj", INTERMEDIATE, HIDDEN),
                ("down_proj", HIDDEN, INTERMEDIATE),
            ] {
                let name = format!("{MLP}.experts.{expert}.{part}");
                model.nvfp4(&name, n, k, 0.5, expert as u64);
                if let Some(dtype) = bias {
                    model.put(&format!("{name}.bias"), dtype, &[n], vec![0; n * dtype.bitsize() / 8]);
                }
            }
        }
        model.write()
    };
    let (half, single) = (Some(Dtype::F16), Some(Dtype::F32));
    for one in [None, half, single] {
        let dir = experts([one; 4]);
        let model = map(dir.path()).unwrap();
        assert!(model.module(MLP).unwrap().layer(Format::Bf16).is_ok());
    }
    for (biases, other) in [
        ([half, single, half, half], 1),
        ([single, single, single, half], 3),
        ([half, half, None, half], 2),
        ([None, None, None, half], 3),
    ] {
        let text = refusal(experts(biases).path());
        let expected = format!("{MLP}.experts.{other}.up_proj`: products with and without a bias, or of two formats");
        assert!(text.ends_with(&expected), "{text}");
    }
}

#[test]
fn configurations_that_are_wrong_or_say_something_else() {
    let with = |name: &str, value: serde_json::Value| {
        let mut model = Model::llama();
        model.config[name] = value;
        refusal(model.write().path())
    };
    let quantised = |value: serde_json::Value| with("quantization_config", value);
    let cases = [
        (with("hidden_size", json!(128)), "is [32, 64], the configuration says [32, 128]"),
        (with("hidden_size", json!(null)), "`hidden_size` is missing"),
        (with("hidden_size", json!(-1)), "`hidden_size` is -1, expected a number from 1 to"),
        (with("hidden_size", json!("x".repeat(5000))), "`hidden_size` is \"xxx"),
        (with("intermediate_size", json!(64)), "is [32, 64], the configuration says [64, 64]"),
        (with("intermediate_size", json!(1e30)), "`intermediate_size` is 1e+30"),
        (with("num_attention_heads", json!(0)), "`num_attention_heads` is 0"),
        (with("hidden_act", json!("selu")), "`hidden_act` is \"selu\""),
        (with("torch_dtype", json!("int8")), "dtype `int8`"),
        (quantised(json!({ "quant_algo": "FP8" })), "is NVFP4, the configuration says FP8"),
        (quantised(json!({ "quant_algo": "INT4" })), "`quant_algo` is \"INT4\", which is not read"),
        (quantised(json!({ "quant_method": "awq" })), "`quant_method` is \"awq\", which is not read"),
        (
            quantised(json!({ "quant_algo": "NVFP4", "ignore": ["*.mlp"] })),
            "the configuration says that it is not quantised",
        ),
        (
            quantised(json!({ "quant_method": "compressed-tensors", "format": "pack-quantized" })),
            "`format` is \"pack-quantized\", which is not read",
        ),
        (
            quantised(json!({ "quant_algo": "NVFP4", "config_groups": { "g": { "weights": { "group_size": 32 } } } })),
            "`group_size` is 32, expected 16",
        ),
    ];
    for (text, expected) in cases {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let mut model = Model::llama();
    model.config = json!({ "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "hidden_size": 64 });
    let text = refusal(model.write().path());
    assert!(text.contains("say GPT2LMHeadModel, gpt2; known are Llama, Mistral"), "{text}");
    let dir = Model::llama().write();
    let text = map(dir.path()).unwrap().module("model.layers.7.mlp").unwrap_err().to_string();
    assert!(text.contains("no tensor begins with `model.layers.7.mlp.`") && text.contains(MLP), "{text}");
}

/// Whatever a header says, nothing outside of the file is read, and nothing panics.
#[test]
fn ten_thousand_mutated_headers() {
    let dir = Model::llama().write();
    let file = dir.path().join("model.safetensors");
    let whole = fs::read(&file).unwrap();
    let header = 8 + u64::from_le_bytes(*whole.first_chunk().unwrap()) as usize;
    let mut rng = fastrand::Rng::with_seed(21);
    let mut refused = 0;
    for _ in 0..10_000 {
        let mut bytes = whole.clone();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..header);
            match rng.u8(..4) {
                0 => bytes[at] = rng.u8(..),
                1 => bytes[at] = *b"0123456789\"[]{},:".get(rng.usize(..17)).unwrap(),
                2 => bytes[at] ^= 1 << rng.u8(..8),
                _ => drop(bytes.remove(at)),
            }
        }
        fs::write(&file, &bytes).unwrap();
        match read_all(dir.path()) {
            Ok(_) => {}
            Err(error) => {
                let text = error.to_string();
                assert!(!text.is_empty() && text.len() < 2000, "{text}");
                refused += 1;
            }
        }
    }
    assert!(refused > 5_000, "{refused}");
}
