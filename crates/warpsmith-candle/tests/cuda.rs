//! Layers on a GPU are those on the CPU. Built with the feature `cuda`, for machines with a GPU.

#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used)] // helpers outside `#[test]` functions

mod common;

use std::fs;

use candle_core::{DType, Device, Error, Module, Result, Tensor};
use common::{Fixture, fixture, fixtures, off_of_largest};
use warpsmith_candle::warpsmith::cache::KernelCache;
use warpsmith_candle::warpsmith::cudarc::driver::CudaContext;
use warpsmith_candle::warpsmith::cudarc::driver::sys::{
    CUgraphInstantiate_flags, CUmemPool_attribute, CUstreamCaptureMode, cuDeviceGetMemPool, cuMemPoolGetAttribute,
};
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
                    assert!(text.contains("quantise it first"), "{what}: {text}");
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

/// Neither a thousand forwards of changing sizes nor a thousand launches of a graph leave memory behind: on the device not a byte
/// of candle's allocator, elsewhere no more than a few bytes each.
#[test]
fn a_thousand_steps_keep_memory() {
    let device = Device::new_cuda_with_stream(0).unwrap();
    let cuda = device.as_cuda_device().unwrap().clone();
    // SAFETY: one stream is used.
    unsafe { cuda.disable_event_tracking() };
    let of = fixture("qwen3-moe-modelopt");
    let layer = Nvfp4Moe::load(&of.checkpoint, MLP, &runtime(&device), 64).unwrap();
    let x = of.tensor(MLP, "x").to_device(&device).unwrap();
    let most = x.dim(0).unwrap();
    let forward = |step: usize| {
        let x = x.narrow(0, 0, 1 + step % most).unwrap();
        layer.forward(&x).unwrap();
    };
    let stream = cuda.cuda_stream();
    let used = || {
        stream.synchronize().unwrap();
        Used::now(stream.context())
    };
    (0..100).for_each(forward);
    let before = used();
    (0..1000).for_each(forward);
    used().is_no_more_than(&before, "forwards");

    let logits = of.tensor(MLP, "logits").to_device(&device).unwrap();
    let y = x.zeros_like().unwrap();
    layer.forward_with_logits(&x, &logits).unwrap();
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).unwrap();
    y.slice_set(&layer.forward_with_logits(&x, &logits).unwrap(), 0, 0).unwrap();
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.end_capture(flags).unwrap().unwrap();
    (0..100).for_each(|_| graph.launch().unwrap());
    let before = used();
    (0..1000).for_each(|_| graph.launch().unwrap());
    used().is_no_more_than(&before, "launches of a graph");
}

/// Bytes.
struct Used {
    /// What the device's allocator in the order of streams has given out.
    given: u64,
    /// All of the device.
    device: usize,
    /// The process's pages in the host's memory.
    host: u64,
}

impl Used {
    fn now(context: &CudaContext) -> Self {
        let mut pool = std::ptr::null_mut();
        let mut given = 0u64;
        let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT;
        // SAFETY: the device is there, and the attribute is a u64.
        unsafe {
            cuDeviceGetMemPool(&raw mut pool, context.cu_device()).result().unwrap();
            cuMemPoolGetAttribute(pool, attribute, (&raw mut given).cast()).result().unwrap();
        }
        let (free, all) = context.mem_get_info().unwrap();
        let pages: u64 = fs::read_to_string("/proc/self/statm").unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        Self { given, device: all - free, host: pages * 4096 }
    }

    #[allow(clippy::print_stdout)] // the numbers, for who asks for them with --nocapture
    fn is_no_more_than(&self, before: &Self, steps: &str) {
        let Self { given, device, host } = *self;
        println!("1000 {steps}: {given} bytes given, {device} of the device, {host} of the host");
        assert_eq!(given, before.given, "{steps}");
        // What the driver takes and gives back in pieces of 2 MiB; a thousand leaks of 4 KiB were more.
        assert!(device <= before.device + (2 << 20), "{steps}: {device}, {} before", before.device);
        assert!(host <= before.host + (4 << 20), "{steps}: {host}, {} before", before.host);
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
