//! What does not fit is refused before anything is computed, with what was found and what was expected.

#![allow(clippy::unwrap_used)] // helpers outside `#[test]` functions

mod common;

use candle_core::{DType, Device, Error, Module, Result, Tensor};
use common::fixture;
use warpsmith_candle::{Nvfp4GatedMlp, Nvfp4Linear, Nvfp4Moe, Runtime, Tokens};

const MLP: &str = "model.layers.0.mlp";
const O: &str = "model.layers.0.self_attn.o_proj";

fn runtime() -> Runtime {
    Runtime::new(&Device::Cpu).unwrap()
}

fn zeros(shape: &[usize], dtype: DType) -> Tensor {
    Tensor::zeros(shape, dtype, &Device::Cpu).unwrap()
}

fn text<T>(refused: Result<T>) -> String {
    let text = refused.err().unwrap().to_string();
    text.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn tokens_are_what_the_layer_takes() {
    let of = fixture("qwen3-moe-modelopt");
    let linear = Nvfp4Linear::load(&of.checkpoint, O, &runtime(), 5).unwrap();
    let moe = Nvfp4Moe::load(&of.checkpoint, MLP, &runtime(), 5).unwrap();
    let of_mlp = fixture("qwen3-modelopt");
    let mlp = Nvfp4GatedMlp::load(&of_mlp.checkpoint, MLP, &runtime(), 5).unwrap();
    let all: [(&dyn Module, usize); 3] = [(&linear, 96), (&mlp, 64), (&moe, 64)];
    for (layer, columns) in all {
        assert!(layer.forward(&zeros(&[5, columns], DType::BF16)).is_ok());
        for dtype in [DType::F32, DType::F16, DType::U8] {
            let found = text(layer.forward(&zeros(&[5, columns], dtype)));
            assert!(found.contains("BF16") && found.contains(&format!("{dtype:?}")), "{found}");
        }
        for shape in [&[5, columns - 1][..], &[columns, 5], &[0], &[]] {
            let found = text(layer.forward(&zeros(shape, DType::BF16)));
            assert!(found.contains(&format!("{shape:?}")) && found.contains(&columns.to_string()), "{found}");
        }
        let found = text(layer.forward(&zeros(&[2, 3, columns], DType::BF16)));
        assert!(found.contains("6 tokens, the layer is for 5 at most"), "{found}");
    }
}

#[test]
fn routings_are_of_the_tokens() {
    let of = fixture("qwen3-moe-modelopt");
    let moe = Nvfp4Moe::load(&of.checkpoint, MLP, &runtime(), 5).unwrap();
    let x = zeros(&[5, 64], DType::BF16);
    for shape in [[5, 7], [4, 8], [8, 5]] {
        let found = text(moe.forward_with_logits(&x, &zeros(&shape, DType::F32)));
        assert!(found.contains("logits") && found.contains(&format!("{shape:?}")), "{found}");
    }
    let chosen = |ids: (&[usize], DType), weights: &[usize]| {
        text(moe.forward_chosen(&x, &zeros(ids.0, ids.1), &zeros(weights, DType::F32)))
    };
    assert!(chosen((&[5, 3], DType::U32), &[5, 2]).contains("ids of"));
    assert!(chosen((&[5, 2], DType::U32), &[5, 3]).contains("weights of"));
    assert!(chosen((&[5, 2], DType::I64), &[5, 2]).contains("I64"));
}

#[test]
fn modules_are_of_their_kind() {
    let of = fixture("qwen3-moe-modelopt");
    let found = text(Nvfp4Moe::load(&of.checkpoint, O, &runtime(), 5));
    assert!(found.contains("is a linear layer, expected: a mixture of experts"), "{found}");
    let found = text(Nvfp4GatedMlp::load(&of.checkpoint, MLP, &runtime(), 5));
    assert!(found.contains("is a mixture of experts, expected: an MLP"), "{found}");
    let found = text(Nvfp4Linear::load(&of.checkpoint, "model.layers.9.mlp", &runtime(), 5));
    assert!(found.contains("no tensor begins with"), "{found}");
    let found = text(Nvfp4Linear::load(&of.checkpoint, O, &runtime(), Tokens::up_to(5).dtype(DType::F32)));
    assert!(found.contains("F32"), "{found}");
}

/// Errors are candle's, which programs can tell apart.
#[test]
fn errors_are_typed() {
    let of = fixture("qwen3-modelopt");
    let mlp = Nvfp4GatedMlp::load(&of.checkpoint, MLP, &runtime(), 5).unwrap();
    let refused = |x: Tensor| {
        let mut error = mlp.forward(&x).unwrap_err();
        while let Error::WithBacktrace { inner, .. } = error {
            error = *inner;
        }
        error
    };
    let (expected, got) = (DType::BF16, DType::F32);
    let found = refused(zeros(&[5, 64], got));
    assert!(matches!(found, Error::UnexpectedDType { expected: a, got: b, .. } if (a, b) == (expected, got)));
    assert!(matches!(refused(zeros(&[5, 63], expected)), Error::UnexpectedShape { .. }));
}
