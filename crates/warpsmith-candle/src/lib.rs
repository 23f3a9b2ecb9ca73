//! Layers on NVFP4 weights for programs on candle: [`Nvfp4Linear`], [`Nvfp4GatedMlp`] and [`Nvfp4Moe`], each a
//! [`Module`](candle_core::Module).
//!
//! ```no_run
//! use candle_core::{DType, Device, Module, Tensor};
//! use warpsmith_candle::{Nvfp4Moe, Runtime};
//! use warpsmith_checkpoint::Checkpoint;
//!
//! let device = Device::cuda_if_available(0)?;
//! let runtime = Runtime::new(&device)?;                                        // one a device
//! // SAFETY: nobody changes these files while they are mapped.
//! let model = unsafe { Checkpoint::map("Qwen3-30B-A3B-NVFP4")? };
//! let experts = Nvfp4Moe::load(&model, "model.layers.0.mlp", &runtime, 8192)?; // up to 8192 tokens at a time
//!
//! let x = Tensor::zeros((1, 17, 2048), DType::BF16, &device)?;
//! let y = experts.forward(&x)?;                                                // [1, 17, 2048]
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # On CUDA
//! With the feature `cuda` a layer runs by the kernels of [`warpsmith_layers`], in candle's context and in the stream of the
//! [`Device`](candle_core::Device). It reads candle's tensors where they lie. A forward waits for nothing, and allocates its result and
//! a workspace by candle's allocator, in the order of the stream: so threads may share a layer, and a graph may capture it once
//! event tracking is off (`CudaDevice::disable_event_tracking`).
//!
//! # On the CPU
//! A layer has its weights dequantised to f32, 7.1 times the bytes of NVFP4, and runs by candle's own products. Values between are
//! f32. It takes modules that no kernel is for, too: weights in other formats, a hidden size that is no multiple of 64.
//!
//! # Shapes
//! x is `[.., K]`, F16 or BF16, as the layer is for. The result is `[.., N]` in the same type.

#[cfg(feature = "cuda")]
mod cuda;
mod front;
mod host;
mod linear;
mod mlp;
mod moe;
mod runtime;
mod weights;

pub use candle_core;
pub use front::Tokens;
pub use linear::Nvfp4Linear;
pub use mlp::Nvfp4GatedMlp;
pub use moe::Nvfp4Moe;
pub use runtime::Runtime;
pub use warpsmith;
pub use warpsmith_checkpoint;
pub use warpsmith_layers;
pub use weights::{Nvfp4MlpWeights, Nvfp4MoeWeights, Nvfp4Weight};

/// What an engine asks of a layer.
const _: fn() = || {
    fn layer<T: candle_core::Module + Send + Sync + 'static>() {}
    layer::<Nvfp4Linear>();
    layer::<Nvfp4GatedMlp>();
    layer::<Nvfp4Moe>();
};
