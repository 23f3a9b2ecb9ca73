//! Checkpoints quantised by a GPU: file by file the bytes of the host, sums of errors among them. Without a GPU every trial is
//! counted as ignored.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use half::{bf16, f16};
use libtest_mimic::{Arguments, Trial};
use safetensors::Dtype;
use serde_json::json;
use tempfile::TempDir;
use warpsmith::cache::KernelCache;
use warpsmith::engine::Engine;
use warpsmith::run::Device;
use warpsmith_checkpoint::{Factors, Layout, Quantise, Quantised, Scales};

mod common;
use common::Model;

type Test = fn(&Engine) -> Result<(), String>;

const TESTS: &[(&str, Test)] = &[
    ("f16, bf16 and f32, by every rule", every_rule_gives_the_same),
    ("stacks of experts, however they lie", stacks_give_the_same),
    ("a matrix of several parts", several_parts_give_the_same),
    ("what one began the other ends", what_one_began_the_other_ends),
    ("no number is quantised", what_is_no_number_is_refused),
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let engine = match Device::open(0) {
        Ok(device) => {
            let cache = KernelCache::builder().install_if_missing().no_disk().build();
            Some(Arc::new(Mutex::new(Engine::with_cache(&device, cache))))
        }
        Err(why) => {
            eprintln!("SKIPPED: nothing is quantised on a GPU: {why}");
            None
        }
    };
    let trials = TESTS.iter().map(|(name, test)| {
        let engine = engine.clone();
        let is_ignored = engine.is_none();
        let run = move || match engine {
            Some(engine) => test(&engine.lock().unwrap_or_else(PoisonError::into_inner)).map_err(Into::into),
            None => Err("there is no GPU".into()),
        };
        Trial::test(format!("quantise: {name}"), run).with_ignored_flag(is_ignored)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

fn bytes_of(dtype: Dtype, values: &[f32]) -> Vec<u8> {
    match dtype {
        Dtype::F16 => values.iter().flat_map(|value| f16::from_f32(*value).to_le_bytes()).collect(),
        Dtype::BF16 => values.iter().flat_map(|value| bf16::from_f32(*value).to_le_bytes()).collect(),
        _ => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
    }
}

/// Seeded numbers that are mostly normal; among them blocks of zeros, of tiny numbers and of small multiples.
fn values(dtype: Dtype, count: usize, seed: u64) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    let smallest = match dtype {
        Dtype::F16 => 2f32.powi(-24),
        _ => bf16::from_bits(1).to_f32(),
    };
    let mut values = Vec::with_capacity(count);
    for block in 0..count / 16 {
        values.extend((0..16).map(|_| match block % 7 {
            2 => [0.0, -0.0][random.usize(..2)],
            3 => smallest * random.i32(-9..9) as f32,
            5 => 0.25 * random.i32(-9..9) as f32,
            _ => (0..6).map(|_| random.f32()).sum::<f32>() - 3.0,
        }));
    }
    values
}

fn model() -> Model {
    let config = json!({
        "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 48, "num_attention_heads": 2,
        "num_key_value_heads": 1,
    });
    Model { config, tensors: BTreeMap::new() }
}

fn put(model: &mut Model, dtype: Dtype, name: &str, shape: &[usize], seed: u64) {
    let bytes = bytes_of(dtype, &values(dtype, shape.iter().product(), seed));
    model.put(name, dtype, shape, bytes);
}

fn on_host(how: &Quantise, from: &Path, to: &Path) -> Result<Quantised, String> {
    // SAFETY: nobody else knows these folders.
    unsafe { how.run(from, to, |_, _| ()) }.map_err(text)
}

fn on_device(engine: &Engine, how: &Quantise, from: &Path, to: &Path) -> Result<Quantised, String> {
    // SAFETY: nobody else knows these folders.
    unsafe { how.run_on(engine, from, to, |_, _| ()) }.map_err(text)
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

/// The state names the sums of squares of each weight, with all their digits.
fn same(expected: &Path, found: &Path) -> Result<(), String> {
    let (expected, found) = (files(expected), files(found));
    if !expected.keys().eq(found.keys()) {
        return Err(format!("{:?}, not {:?}", found.keys(), expected.keys()));
    }
    match expected.keys().find(|name| expected[*name] != found[*name]) {
        Some(name) => Err(format!("{name} has other bytes")),
        None => Ok(()),
    }
}

/// By both, into folders of their own.
fn both_give_the_same(engine: &Engine, how: &Quantise, from: &TempDir) -> Result<usize, String> {
    let to = tempfile::tempdir().map_err(text)?;
    let (host, device) = (to.path().join("host"), to.path().join("device"));
    let expected = on_host(how, from.path(), &host)?;
    let found = on_device(engine, how, from.path(), &device)?;
    same(&host, &device)?;
    match found.weights() == expected.weights() && !found.weights().is_empty() {
        true => Ok(found.weights().len()),
        false => Err("other weights, or none".to_owned()),
    }
}

/// Odd numbers of rows and of blocks of a row; the largest and the smallest numbers; zeros alone; several formats in one model.
fn every_rule_gives_the_same(engine: &Engine) -> Result<(), String> {
    let mut model = model();
    for (seed, (dtype, most)) in
        [(Dtype::F16, 65504.0), (Dtype::BF16, bf16::MAX.to_f32()), (Dtype::F32, f32::MAX)].into_iter().enumerate()
    {
        let of = |name: &str| format!("model.layers.{seed}.{name}.weight");
        for (nth, (name, rows, k)) in
            [("q_proj", 64, 64), ("k_proj", 33, 64), ("v_proj", 1, 64), ("o_proj", 7, 1040)].into_iter().enumerate()
        {
            put(&mut model, dtype, &of(&format!("self_attn.{name}")), &[rows, k], (8 * seed + nth) as u64);
        }
        put(&mut model, dtype, &of("mlp.gate_proj"), &[37, 48], 99);
        put(&mut model, dtype, &of("mlp.up_proj"), &[37, 16], 98);
        let mut down = values(dtype, 5 * 272, 97);
        down[272 + 3] = -most;
        model.put(&of("mlp.down_proj"), dtype, &[5, 272], bytes_of(dtype, &down));
        model.put(&of("mlp.w1"), dtype, &[3, 32], bytes_of(dtype, &[0.0; 96]));
        // All that there is is subnormal, and so would the factor be.
        let tiny = bytes_of(dtype, &[1e-7; 32]).iter().map(|byte| byte & 0x03).collect();
        model.put(&of("mlp.w2"), dtype, &[1, 32], tiny);
    }
    let from = model.write();
    for scales in [Scales::Search, Scales::Largest] {
        for layout in [Layout::ModelOpt, Layout::CompressedTensors] {
            for factors in [Factors::Shared, Factors::Own] {
                let how = Quantise::new().scales(scales).layout(layout).factors(factors).threads(2);
                let done = both_give_the_same(engine, &how, &from);
                let count = done.map_err(|why| format!("{scales}, {layout}, {factors}: {why}"))?;
                if count != 27 {
                    return Err(format!("{count} weights"));
                }
            }
        }
    }
    Ok(())
}

/// `[E, N, K]`, `[E, K, N]`, and rows of gate and up in turns.
fn stacks_give_the_same(engine: &Engine) -> Result<(), String> {
    let straight = [[3, 96, 32], [3, 32, 48]];
    let across = [[3, 32, 96], [3, 48, 32]];
    for (architecture, module, [up, down]) in [
        ("Qwen3MoeForCausalLM", "mlp", straight),
        ("Llama4ForCausalLM", "feed_forward", across),
        ("GptOssForCausalLM", "mlp", across),
    ] {
        let mut model = model();
        model.config = json!({"architectures": [architecture], "hidden_size": 32, "intermediate_size": 48,
            "moe_intermediate_size": 48, "num_experts": 3, "num_local_experts": 3, "num_experts_per_tok": 2,
            "norm_topk_prob": true, "intermediate_size_mlp": 64});
        let name = |of: &str| format!("model.layers.0.{module}.experts.{of}");
        put(&mut model, Dtype::BF16, &name("gate_up_proj"), &up, 1);
        put(&mut model, Dtype::BF16, &name("down_proj"), &down, 2);
        let done = both_give_the_same(engine, &Quantise::new().threads(3), &model.write());
        let count = done.map_err(|why| format!("{architecture}: {why}"))?;
        if count != 9 {
            return Err(format!("{architecture}: {count} weights"));
        }
    }
    Ok(())
}

/// Of 16 MiB each, and one that is smaller.
fn several_parts_give_the_same(engine: &Engine) -> Result<(), String> {
    let mut model = model();
    let (rows, k) = (2 * 1024 + 301, 2048);
    let some = bytes_of(Dtype::F32, &values(Dtype::F32, k * 16, 5));
    // Each sixteen rows begin elsewhere.
    let all = (0..rows * k * 4).map(|at| some[(at + at / some.len() * 4 * 16 * 3) % some.len()]).collect();
    model.put("model.layers.0.self_attn.o_proj.weight", Dtype::F32, &[rows, k], all);
    both_give_the_same(engine, &Quantise::new().scales(Scales::Largest), &model.write()).map(drop)
}

fn what_one_began_the_other_ends(engine: &Engine) -> Result<(), String> {
    let mut model = model();
    for layer in 0..2 {
        for (nth, name) in ["gate_proj", "up_proj", "down_proj"].iter().enumerate() {
            let name = format!("model.layers.{layer}.mlp.{name}.weight");
            put(&mut model, Dtype::BF16, &name, &[48, 64], 3 * layer + nth as u64);
        }
    }
    let (from, to) = (model.write_in_two(), tempfile::tempdir().map_err(text)?);
    let (how, whole) = (Quantise::new(), to.path().join("whole"));
    on_host(&how, from.path(), &whole)?;
    for is_begun_by_device in [false, true] {
        let half = to.path().join(is_begun_by_device.to_string());
        // Without a word, as a signal does.
        let stop = |done: u64, all: u64| {
            if 4 * done > 3 * all {
                resume_unwind(Box::new(()))
            }
        };
        let stopped = catch_unwind(AssertUnwindSafe(|| match is_begun_by_device {
            // SAFETY: nobody else knows these folders.
            true => unsafe { how.run_on(engine, from.path(), &half, stop) },
            // SAFETY: as above.
            false => unsafe { how.run(from.path(), &half, stop) },
        }));
        if stopped.is_ok() || half.join("config.json").exists() {
            return Err("it is not stopped".to_owned());
        }
        let ended = match is_begun_by_device {
            true => on_host(&how, from.path(), &half)?,
            false => on_device(engine, &how, from.path(), &half)?,
        };
        if ended.resumed() != 1 {
            return Err(format!("{} files were there", ended.resumed()));
        }
        same(&whole, &half)?;
    }
    Ok(())
}

fn what_is_no_number_is_refused(engine: &Engine) -> Result<(), String> {
    for (value, word) in [(bf16::NAN, "NaN"), (bf16::INFINITY, "inf"), (bf16::NEG_INFINITY, "-inf")] {
        let mut model = model();
        let mut bytes = bytes_of(Dtype::BF16, &values(Dtype::BF16, 40 * 96, 4));
        bytes[2 * (33 * 96 + 5)..][..2].copy_from_slice(&value.to_le_bytes());
        model.put("model.layers.0.mlp.down_proj.weight", Dtype::BF16, &[40, 96], bytes);
        let to = tempfile::tempdir().map_err(text)?;
        let refusal = on_device(engine, &Quantise::new(), model.write().path(), &to.path().join("to"));
        let why = format!("weight `model.layers.0.mlp.down_proj`: the value at row 33, column 5 is {word}");
        match refusal {
            Err(said) if said.contains(&why) => {}
            other => return Err(format!("{other:?}, not `{why}`")),
        }
    }
    Ok(())
}
