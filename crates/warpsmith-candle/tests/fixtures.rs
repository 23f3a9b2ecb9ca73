//! Modules of checkpoints that others have written give what their own code gives (warpsmith-checkpoint's
//! `tests/fixtures/make.py`).

#![allow(clippy::unwrap_used, clippy::panic)] // helpers outside `#[test]` functions

mod common;

use candle_core::{DType, Device, Module, Tensor};
use common::{Fixture, fixture, fixtures, off, off_of_largest};
use warpsmith_candle::warpsmith::engine::Manifest;
use warpsmith_candle::warpsmith_checkpoint::Module as Found;
use warpsmith_candle::{Nvfp4GatedMlp, Nvfp4Linear, Nvfp4Moe, Runtime, Tokens};

fn layer(of: &Fixture, module: &str, tokens: Tokens) -> Box<dyn Module> {
    let runtime = Runtime::new(&Device::Cpu).unwrap();
    match of.checkpoint.module(module).unwrap() {
        Found::Linear(_) => Box::new(Nvfp4Linear::load(&of.checkpoint, module, &runtime, tokens).unwrap()),
        Found::Mlp(_) => Box::new(Nvfp4GatedMlp::load(&of.checkpoint, module, &runtime, tokens).unwrap()),
        _ => Box::new(Nvfp4Moe::load(&of.checkpoint, module, &runtime, tokens).unwrap()),
    }
}

/// The result is the true one, rounded once: some f32 noise more than half of a last place. With inputs that are weighted the
/// model's code rounds on the way, too, and what it rounds is multiplied.
#[test]
fn a_module_gives_what_its_own_code_gives() {
    let mut count = 0;
    for folder in fixtures() {
        let fixture = Fixture::read(&folder);
        let is_rounded = fixture.checkpoint.config().experts().is_some_and(|rule| rule.weighs_inputs());
        for module in fixture.modules() {
            let (x, y) = (fixture.tensor(&module, "x"), fixture.tensor(&module, "y"));
            let found = layer(&fixture, &module, Tokens::up_to(5).dtype(DType::BF16)).forward(&x).unwrap();
            assert_eq!((found.dtype(), found.dims()), (DType::BF16, y.dims()));
            let off = if is_rounded { off_of_largest(&found, &y) } else { off(&found, &y) };
            assert!(off <= 1.05, "{}: {module}: {off} halves of a last place", fixture.name);
            count += 1;
        }
    }
    assert!(count >= 30, "{count} modules");
}

#[test]
fn leading_dimensions_stay() {
    let fixture = fixture("qwen3-moe-modelopt");
    for module in fixture.modules() {
        let x = fixture.tensor(&module, "x");
        let layer = layer(&fixture, &module, 5.into());
        let whole = layer.forward(&x).unwrap();
        let (columns, outputs) = (x.dim(1).unwrap(), whole.dim(1).unwrap());
        let bits = |y: &Tensor| y.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let y = layer.forward(&x.reshape((1, 5, columns)).unwrap()).unwrap();
        assert_eq!((y.dims(), bits(&y)), (&[1, 5, outputs][..], bits(&whole)));
        let one = layer.forward(&x.get(3).unwrap()).unwrap();
        assert_eq!((one.dims(), one.dtype()), (&[outputs][..], DType::BF16));
        assert!(off(&one, &whole.get(3).unwrap()) <= 2.0);
        // Columns that lie apart.
        let apart = x.t().unwrap().contiguous().unwrap().t().unwrap();
        assert!(!apart.is_contiguous());
        assert_eq!(bits(&layer.forward(&apart).unwrap()), bits(&whole));
        // No tokens.
        let none = layer.forward(&x.narrow(0, 0, 0).unwrap().reshape((3, 0, columns)).unwrap()).unwrap();
        assert_eq!((none.dims(), none.dtype()), (&[3, 0, outputs][..], DType::BF16));
    }
}

#[test]
fn f16_tokens_give_f16() {
    for name in ["llama-f16", "qwen3-moe-ct", "phi3-ct"] {
        let fixture = fixture(name);
        for module in fixture.modules() {
            let x = fixture.tensor(&module, "x").to_dtype(DType::F16).unwrap();
            let y = layer(&fixture, &module, Tokens::up_to(5).dtype(DType::F16)).forward(&x).unwrap();
            assert_eq!(y.dtype(), DType::F16);
            // bf16 tokens are not quite f16 ones.
            let off = off(&y, &fixture.tensor(&module, "y"));
            assert!(off < 3.0, "{name}: {module}: {off}");
        }
    }
    // The checkpoint's own type, where nothing is said.
    let runtime = Runtime::new(&Device::Cpu).unwrap();
    let of = |name: &str| Nvfp4GatedMlp::load(&fixture(name).checkpoint, "model.layers.0.mlp", &runtime, 5).unwrap();
    assert_eq!((of("llama-f16").dtype(), of("llama-ct").dtype()), (DType::F16, DType::BF16));
}

/// By the router, by its logits, and by the experts and weights that the model's own code has chosen.
#[test]
fn experts_are_chosen_in_three_ways() {
    let runtime = Runtime::new(&Device::Cpu).unwrap();
    let mut count = 0;
    for folder in fixtures() {
        let fixture = Fixture::read(&folder);
        for module in fixture.modules() {
            if !matches!(fixture.checkpoint.module(&module).unwrap(), Found::Moe(_)) {
                continue;
            }
            let tensor = |name: &str| fixture.tensor(&module, name);
            let layer =
                Nvfp4Moe::load(&fixture.checkpoint, &module, &runtime, Tokens::up_to(5).dtype(DType::BF16)).unwrap();
            let (x, ids, weights) = (tensor("x"), tensor("experts"), tensor("weights"));
            let by_router = layer.forward(&x).unwrap();
            let by_logits = layer.forward_with_logits(&x, &tensor("logits")).unwrap();
            let by_ids = layer.forward_chosen(&x, &ids, &weights).unwrap();
            for (what, y) in [("router", &by_router), ("logits", &by_logits), ("ids", &by_ids)] {
                let off = off_of_largest(y, &tensor("y"));
                assert!(off <= 1.05, "{}: {module} by its {what}: {off}", fixture.name);
            }
            // Leading dimensions, and U32.
            let (x, ids) = (x.unsqueeze(0).unwrap(), ids.unsqueeze(0).unwrap().to_dtype(DType::U32).unwrap());
            let y = layer.forward_chosen(&x, &ids, &weights.unsqueeze(0).unwrap()).unwrap();
            assert_eq!(y.dims(), x.dims());
            assert_eq!(common::doubles(&y), common::doubles(&by_ids));
            count += 1;
        }
    }
    assert!(count >= 10, "{count} mixtures");
}

/// A slot without an expert adds nothing, and an expert counts once.
#[test]
fn slots_may_have_no_expert() {
    let (fixture, module) = (fixture("qwen3-moe-modelopt"), "model.layers.0.mlp");
    let runtime = Runtime::new(&Device::Cpu).unwrap();
    let layer = Nvfp4Moe::load(&fixture.checkpoint, module, &runtime, 5).unwrap();
    let x = fixture.tensor(module, "x");
    let forward = |ids: &[i32; 10], weights: &[f32; 10]| {
        let ids = Tensor::from_slice(ids, (5, 2), &Device::Cpu).unwrap();
        let weights = Tensor::from_slice(weights, (5, 2), &Device::Cpu).unwrap();
        common::doubles(&layer.forward_chosen(&x, &ids, &weights).unwrap())
    };
    assert!(forward(&[-1; 10], &[1.0; 10]).iter().all(|y| *y == 0.0));
    assert!(forward(&[8; 10], &[1.0; 10]).iter().all(|y| *y == 0.0));
    let once = forward(&[3, -1, 3, -1, 3, -1, 3, -1, 3, -1], &[0.5; 10]);
    assert!(once.iter().any(|y| *y != 0.0));
    assert_eq!(forward(&[3; 10], &[0.5; 10]), once);
}

/// What several devices have of the experts adds up to the whole.
#[test]
fn some_of_the_experts_are_a_part_of_the_sum() {
    let runtime = Runtime::new(&Device::Cpu).unwrap();
    for (name, module) in [("qwen3-moe-ct", "model.layers.0.mlp"), ("deepseek-v3-modelopt", "model.layers.1.mlp")] {
        let fixture = fixture(name);
        let Found::Moe(moe) = fixture.checkpoint.module(module).unwrap() else { panic!("{module}") };
        let x = fixture.tensor(module, "x");
        let part = |range| {
            let part = moe.clone().some_experts(range).unwrap();
            Nvfp4Moe::of(&part, &runtime, 5).unwrap().forward(&x).unwrap().to_dtype(DType::F64).unwrap()
        };
        let sum = (part(0..3) + part(3..8)).unwrap().to_dtype(DType::BF16).unwrap();
        let off = off_of_largest(&sum, &fixture.tensor(module, "y"));
        assert!(off <= 3.0, "{name}: {off}");
    }
}

/// There is nothing to make ready on the CPU.
#[test]
fn the_cpu_has_no_engine() {
    let runtime = Runtime::with_engine(&Device::Cpu, |_| panic!("an engine on the CPU")).unwrap();
    assert!(runtime.engine().is_none() && runtime.device().is_cpu());
    assert!(runtime.warm(&Manifest::new()).is_none());
}
