//! Layers from tensors are those of checkpoints.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers outside `#[test]` functions

mod common;

use std::collections::HashMap;
use std::fs;

use candle_core::{DType, Device, Module, Result, Tensor, safetensors};
use common::{Fixture, doubles, fixture, fixtures, off, off_of_largest};
use warpsmith_candle::warpsmith::format::Format;
use warpsmith_candle::warpsmith_layers::{LayerConfig, LinearConfig, MoeConfig};
use warpsmith_candle::{Nvfp4GatedMlp, Nvfp4Linear, Nvfp4MlpWeights, Nvfp4Moe, Nvfp4MoeWeights, Nvfp4Weight, Runtime};

const MLP: &str = "model.layers.0.mlp";

fn runtime() -> Runtime {
    Runtime::new(&Device::Cpu).unwrap()
}

/// Its tensors, as candle reads them.
fn tensors(of: &Fixture) -> HashMap<String, Tensor> {
    let folder = fixtures().into_iter().find(|path| path.ends_with(&of.name)).unwrap();
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("model"));
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "safetensors"));
    files.flat_map(|path| safetensors::load(path, &Device::Cpu).unwrap()).collect()
}

fn weight(of: &HashMap<String, Tensor>, name: &str) -> Nvfp4Weight {
    let part = |part: &str| of[&format!("{name}.{part}")].clone();
    let factor = part("weight_scale_2").to_scalar().unwrap();
    Nvfp4Weight::new(part("weight"), part("weight_scale")).factor(factor)
}

fn mlp(of: &HashMap<String, Tensor>, name: &str) -> Nvfp4MlpWeights {
    let part = |part: &str| weight(of, &format!("{name}.{part}"));
    Nvfp4MlpWeights::gated(part("gate_proj"), part("up_proj"), part("down_proj"))
}

fn stack(of: &HashMap<String, Tensor>, module: &str, product: &str) -> Nvfp4Weight {
    let all = |part: &str| {
        let each: Vec<_> = (0..8).map(|expert| &of[&format!("{module}.experts.{expert}.{product}.{part}")]).collect();
        // candle stacks no e4m3 values.
        let each: Vec<_> = each.iter().map(|tensor| as_bytes(tensor)).collect();
        Tensor::stack(&each, 0).unwrap()
    };
    Nvfp4Weight::new(all("weight"), all("weight_scale")).factors(all("weight_scale_2"))
}

/// e4m3 values as bytes; others as they are.
fn as_bytes(of: &Tensor) -> Tensor {
    use candle_core::{CpuStorage, Storage};
    if of.dtype() != DType::F8E4M3 {
        return of.clone();
    }
    let (storage, _) = of.storage_and_layout();
    let Storage::Cpu(CpuStorage::F8E4M3(values)) = &*storage else { panic!("{of:?}") };
    let bytes: Vec<u8> = values.iter().map(|value| value.to_bits()).collect();
    Tensor::from_vec(bytes, of.shape(), &Device::Cpu).unwrap()
}

fn config(of: &Fixture, module: &str) -> LayerConfig {
    of.checkpoint.module(module).unwrap().layer(Format::Bf16).unwrap()
}

#[test]
fn an_mlp_is_that_of_its_checkpoint() {
    let of = fixture("qwen3-modelopt");
    let LayerConfig::Mlp(config) = config(&of, MLP) else { panic!() };
    let layer = Nvfp4GatedMlp::new(&config, &mlp(&tensors(&of), MLP), &runtime(), 5).unwrap();
    let y = layer.forward(&of.tensor(MLP, "x")).unwrap();
    assert!(off(&y, &of.tensor(MLP, "y")) <= 1.05);
}

/// With a shared expert, a bias and a scale of its router, groups.
#[test]
fn experts_are_those_of_their_checkpoint() {
    let (of, module) = (fixture("deepseek-v3-modelopt"), "model.layers.1.mlp");
    let all = tensors(&of);
    let LayerConfig::Moe(config) = config(&of, module) else { panic!() };
    let part = |product: &str| stack(&all, module, product);
    let experts = Nvfp4MlpWeights::gated(part("gate_proj"), part("up_proj"), part("down_proj"));
    let weights = Nvfp4MoeWeights::new(experts)
        .shared(mlp(&all, &format!("{module}.shared_experts")))
        .router(all[&format!("{module}.gate.weight")].clone())
        .router_bias(all[&format!("{module}.gate.e_score_correction_bias")].clone())
        .scale(of.checkpoint.config().experts().unwrap().scale());
    let layer = Nvfp4Moe::new(&config, &weights, &runtime(), 5).unwrap();
    let (x, y) = (of.tensor(module, "x"), of.tensor(module, "y"));
    assert!(off(&layer.forward(&x).unwrap(), &y) <= 1.05);

    // Logits in the type that the configuration says; any is converted to that.
    let logits = of.tensor(module, "logits");
    let by_logits = layer.forward_with_logits(&x, &logits.to_dtype(DType::F64).unwrap()).unwrap();
    assert!(off(&by_logits, &y) <= 1.05);

    let refusal = |config: &MoeConfig, weights: &Nvfp4MoeWeights| {
        Nvfp4Moe::new(config, weights, &runtime(), 5).unwrap_err().to_string()
    };
    assert!(refusal(&config.residual(), &weights).contains("a module is given no residual"));
    let half = weights.clone().router(all[&format!("{module}.gate.weight")].narrow(0, 0, 4).unwrap());
    assert!(refusal(&config, &half).contains("a router"), "{}", refusal(&config, &half));
    let others = Nvfp4MoeWeights::new(mlp(&all, "model.layers.0.mlp"));
    assert!(refusal(&config, &others).contains("[8, 32, 32]"), "{}", refusal(&config, &others));
}

/// q, k and v with their own factors are one layer with a factor a row; and a bias.
#[test]
fn rows_have_factors_and_a_bias() {
    let (of, within) = (fixture("qwen3-moe-modelopt"), "model.layers.0.self_attn");
    let all = tensors(&of);
    let parts = ["q_proj", "k_proj", "v_proj"].map(|part| format!("{within}.{part}"));
    let cat = |name: &str| {
        let each: Vec<_> = parts.iter().map(|part| as_bytes(&all[&format!("{part}.{name}")])).collect();
        Tensor::cat(&each, 0).unwrap()
    };
    let factors: Result<Vec<Tensor>> = parts
        .iter()
        .map(|part| {
            let rows = all[&format!("{part}.weight")].dim(0)?;
            all[&format!("{part}.weight_scale_2")].reshape(1)?.expand(rows)?.contiguous()
        })
        .collect();
    let factors = Tensor::cat(&factors.unwrap(), 0).unwrap();
    let weight = || Nvfp4Weight::new(cat("weight"), cat("weight_scale")).row_factors(factors.clone());
    let x = of.tensor(MLP, "x");
    let module = format!("{within}.qkv_proj");
    let LayerConfig::Linear(config) = config(&of, &module) else { panic!() };
    let expected = Nvfp4Linear::load(&of.checkpoint, &module, &runtime(), 5).unwrap().forward(&x).unwrap();
    let layer = Nvfp4Linear::new(&config, &weight(), &runtime(), 5).unwrap();
    // Factors are rounded into weights in another order.
    assert!(off(&layer.forward(&x).unwrap(), &expected) <= 2.0);

    let bias: Vec<f32> = (0..192).map(|column| column as f32 * 0.25 - 20.0).collect();
    let bias = Tensor::new(bias, &Device::Cpu).unwrap().to_dtype(DType::BF16).unwrap();
    let with = |bias: Tensor| Nvfp4Linear::new(&config.bias(Format::Bf16), &weight().bias(bias), &runtime(), 5);
    let y = with(bias.clone()).unwrap().forward(&x).unwrap();
    let sums: Vec<f64> = doubles(&expected).iter().zip(doubles(&bias).iter().cycle()).map(|(y, b)| y + b).collect();
    let sums = Tensor::from_vec(sums, (5, 192), &Device::Cpu).unwrap();
    // What is added to was rounded, too.
    assert!(off_of_largest(&y, &sums) <= 2.0, "{}", off_of_largest(&y, &sums));

    let refusal = |layer: Result<Nvfp4Linear>| layer.unwrap_err().to_string();
    assert!(refusal(with(bias.to_dtype(DType::F32).unwrap())).contains("F32"));
    assert!(refusal(with(bias.narrow(0, 0, 191).unwrap())).contains("[191]"));
    let bare = LinearConfig::new(192, 64).format(Format::Bf16);
    let found = refusal(Nvfp4Linear::new(&bare, &weight(), &runtime(), 5));
    assert!(found.contains("weight: row factors given, the layer has none"), "{found}");
    for (k, expected) in [(96, "expected: [192, 48], got: [192, 32]"), (72, "K = 72: must be a multiple of 16")] {
        let found = refusal(Nvfp4Linear::new(&LinearConfig::new(192, k), &weight(), &runtime(), 5));
        assert!(found.contains(expected), "{found}");
    }
}
