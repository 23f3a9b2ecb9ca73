//! Whole layers over [`warpsmith`]'s kernels: [`Linear`], [`GatedMlp`] and [`Moe`], on NVFP4 weights.
//!
//! A layer has the plans of all its kernels for every number of tokens up to its limit. Its workspace is one piece of device
//! memory of the caller's ([`Moe::workspace_bytes`]). A forward checks its operands, puts launches into a stream, each of which may
//! begin while the one before ends, and returns: it allocates nothing and waits for nothing, and nothing of the routing comes
//! to the host, so that one captured graph serves every routing.
//!
//! ```no_run
//! use warpsmith::engine::Engine;
//! use warpsmith::half::bf16;
//! use warpsmith::run::Device;
//! use warpsmith_layers::{LayerOperands, MlpWeights, Moe, MoeConfig, MoeWeights, Quantised};
//!
//! let engine = Engine::new(&Device::open(0)?);
//! let stream = engine.device().context().new_stream()?;
//! let config: MoeConfig = "moe.silu:bf16:h2048:i768:softmax:bf16:e128:k8:renormalised".parse()?;
//! // A checkpoint's codes and block scales, [E, I, H] of gate and up, [E, H, I] of down; here zeros.
//! let quantised = || -> Result<_, warpsmith::Error> {
//!     let values = 128 * 768 * 2048;
//!     Ok(Quantised::new(stream.alloc_zeros(values / 2)?, stream.alloc_zeros(values / 16)?).alpha(0.01))
//! };
//! let weights = MoeWeights::new(MlpWeights::gated(quantised()?, quantised()?, quantised()?));
//! let moe = Moe::new(&engine, &stream, &config, weights, 8192)?;           // once: picks, compiles or loads, repacks
//! let mut workspace = stream.alloc_zeros::<u8>(moe.workspace_bytes(8192) as usize)?;
//!
//! let tokens = 17;
//! let (x, logits) = (stream.alloc_zeros::<bf16>(tokens * 2048)?, stream.alloc_zeros::<bf16>(tokens * 128)?);
//! let mut out = stream.alloc_zeros::<bf16>(tokens * 2048)?;
//! let operands = LayerOperands::new(tokens as u32, &x, &mut out, &mut workspace);
//! moe.forward(&stream, operands, &logits)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod config;
mod linear;
mod mlp;
mod moe;
mod operands;
mod pad;
mod product;
mod rounded;
mod scaler;
mod step;
mod weights;
mod workspace;

pub use config::{KNOWN, LayerConfig, LinearConfig, MlpConfig, MoeConfig, named};
pub use linear::Linear;
pub use mlp::{GatedMlp, MlpWeights};
pub use moe::{Moe, MoeWeights};
pub use operands::LayerOperands;
pub use step::Step;
pub use weights::{Bias, Factor, Quantised};
