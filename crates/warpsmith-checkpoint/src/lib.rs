//! From a checkpoint's files to layers.
//!
//! A [`Checkpoint`] is a folder of a model: `config.json` and safetensors files, which are mapped, never read whole. A
//! [`Module`] of it, found by its name, is a product, an MLP or experts; its [`Weight`]s lie where they lie in the files.
//!
//! | weights | stored as |
//! |---|---|
//! | NVFP4 | ModelOpt's and compressed-tensors' names; stacks of experts, transposed or not |
//! | MXFP4 | gpt-oss' blocks, compressed-tensors' names |
//! | FP8 | e4m3 with one factor: read, and known to no kernel |
//! | f16, bf16, f32 | read, and known to no kernel until they are quantised |
//!
//! ```no_run
//! use warpsmith_checkpoint::{Checkpoint, Module};
//! // SAFETY: nobody changes these files while they are mapped.
//! let model = unsafe { Checkpoint::map("Qwen3-30B-A3B-NVFP4")? };
//! let Module::Moe(moe) = model.module("model.layers.0.mlp")? else { panic!("a layer with experts") };
//! println!("{}: {} experts, {}", model.config(), moe.experts().len(), moe.rule().route());
//! let first_row: Vec<f32> = moe.experts()[0].up().parts()[0].dequantised(0)?;
//! # Ok::<(), warpsmith::Error>(())
//! ```

mod checkpoint;
mod config;
mod folder;
mod module;
mod quantise;
mod upload;
mod weight;

pub use checkpoint::{Checkpoint, Layers};
pub use config::{Architecture, Config, Experts};
pub use module::{Bias, Mlp, Module, Moe, Multiplier, Product};
pub use quantise::{Factors, Layout, Quantise, Quantised, QuantisedWeight, Scales};
pub use upload::{UploadTimes, Uploader};
pub use weight::{Packed, Storage, Weight};
