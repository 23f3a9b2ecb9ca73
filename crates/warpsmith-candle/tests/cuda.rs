//! Layers on a GPU are those on the CPU. Built with the feature `cuda`, for machines with a GPU.

#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used)] // helpers outside `#[test]` functions

mod common;

use candle_core::{DType, Device, Error, Module, Result, Tensor};
use common::{Fixture, fixture, fixtures, off_of_largest};
use warpsmith_candle::warpsmith::cache::KernelCache;
use warpsmith_candle::warpsmith::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use warpsmith_candle::warpsmith::engine::Engine;
use warpsmith_candle::warpsmith_checkpoint::Module as Found;
use warpsmith_candle::{Nvfp4GatedMlp, Nvfp4Linear, Nvfp4Moe, Runtime, Tokens};

const MLP: &str = "model.layers.0.mlp";

/// What a GPU may be off by, in halves of the largest's last place: rows between kernels are rounded, too.
const LIMIT: f64 = 4.0;

fn runtime(device: &Device) -> Runtime {
    let engine = |device: &_| Engine::with_cache(device, KernelCache::builder().install_if_missing().build());
    Runtime::with_engine(device, engine).unwrap()
}

fn layer(of: &Fixture, module: &str, runtime: &Runtime) -> Result<Box<dyn Module>> {
    let tokens = Tokens::up_to(64).dtype(DType::BF16);
    Ok(match of.checkpoint.module(module).unwrap() {
        Found::Linear(_) => Box::new(Nvfp4Linear::load(&of.checkpoint, module, runtime, tokens)?),
        Found::Mlp(_) => Box::new(Nvfp4GatedMlp::load(&of.checkpoint, module, runtime, tokens)?),
        _ => Box::new(Nvfp4Moe::load(&of.checkpoint, module, runtime, tokens)?),
    })
}

#[test]
fn modules_are_those_of_the_cpu() {
    let device = Device::new_cuda(0).unwrap();
    let runtime = runtime(&device);
    let mut count = 0;
    for folder in fixtures() {
        let fixture = Fixture::read(&folder);
        for module in fixture.modules() {
            let what = format!("{}: {module}", fixture.name);
            let layer = match layer(&fixture, &module, &runtime) {
                Ok(layer) => layer,
                Err(error) => {
                    let text = error.to_string();
                    let reasons = ["quantise it first", "must be a multiple of", "multiple of 64"];
                    assert!(reasons.iter().any(|reason| text.contains(reason)), "{what}: {text}");
                    continue;
                }
            };
            let x = fixture.tensor(&module, "x").to_device(&device).unwrap();
            let expected = fixture.tensor(&module, "y");
            let y = layer.forward(&x.unsqueeze(0).unwrap()).unwrap();
            assert_eq!(y.dims(), [&[1], expected.dims()].concat());
            let off = off_of_largest(&y.to_device(&Device::Cpu).unwrap(), &expected);
            assert!(off <= LIMIT, "{what}: {off}");
            count += 1;
        }
    }
    assert!(count >= 10, "{count} modules");
}

#[test]
fn experts_are_chosen_in_three_ways() {
    let device = Device::new_cuda(0).unwrap();
    let of = fixture("qwen3-moe-modelopt");
    let layer = Nvfp4Moe::load(&of.checkpoint, MLP, &runtime(&device), 64).unwrap();
    let tensor = |name: &str| of.tensor(MLP, name).to_device(&device).unwrap();
    let (x, ids, weights) = (tensor("x"), tensor("experts"), tensor("weights"));
    let of_ids = ids.to_device(&Device::Cpu).unwrap().to_dtype(DType::U32).unwrap().to_device(&device).unwrap();
    for y in [
        layer.forward_with_logits(&x, &tensor("logits")),
        layer.forward_chosen(&x, &ids, &weights),
        layer.forward_chosen(&x, &of_ids, &weights),
    ] {
        let off = off_of_largest(&y.unwrap().to_device(&Device::Cpu).unwrap(), &of.tensor(MLP, "y"));
        assert!(off <= LIMIT, "{off}");
    }
}

/// A graph of a forward computes what is in x when it is launched.
#[test]
fn a_forward_is_captured() {
    let device = Device::new_cuda_with_stream(0).unwrap();
    let cuda = device.as_cuda_device().unwrap().clone();
    // SAFETY: one stream is used.
    unsafe { cuda.disable_event_tracking() };
    let of = fixture("qwen3-moe-modelopt");
    let layer = Nvfp4Moe::load(&of.checkpoint, MLP, &runtime(&device), 64).unwrap();
    let given = [of.tensor(MLP, "x"), (of.tensor(MLP, "x") * 0.5).unwrap()];
    let given = given.map(|x| x.to_device(&device).unwrap());
    let logits = of.tensor(MLP, "logits").to_device(&device).unwrap();
    let bits = |y: &Tensor| common::doubles(&y.to_device(&Device::Cpu).unwrap());
    let expected = given.each_ref().map(|x| bits(&layer.forward_with_logits(x, &logits).unwrap()));
    let (x, y) = (given[0].zeros_like().unwrap(), given[0].zeros_like().unwrap());
    let stream = cuda.cuda_stream();
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    y.slice_set(&layer.forward_with_logits(&x, &logits).unwrap(), 0, 0).unwrap();
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags).unwrap().unwrap();
    for (given, expected) in given.iter().zip(&expected) {
        x.slice_set(given, 0, 0).unwrap();
        graph.launch().unwrap();
        assert_eq!(&bits(&y), expected);
    }
}

#[test]
fn tensors_of_another_device_are_refused() {
    let device = Device::new_cuda(0).unwrap();
    let of = fixture("qwen3-modelopt");
    let layer = Nvfp4GatedMlp::load(&of.checkpoint, MLP, &runtime(&device), 64).unwrap();
    let mut error = layer.forward(&of.tensor(MLP, "x")).unwrap_err();
    while let Error::WithBacktrace { inner, .. } = error {
        error = *inner;
    }
    assert!(matches!(error, Error::DeviceMismatchBinaryOp { .. }), "{error}");
}
