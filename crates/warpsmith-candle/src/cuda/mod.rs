//! Layers by warpsmith's kernels, in candle's context and stream, on candle's memory.

mod forward;
mod ops;
mod weights;

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{Device, Error, Result};
use warpsmith::cudarc::driver::CudaStream;
use warpsmith::engine::Engine;
use warpsmith::format::Format;
use warpsmith::internal::Raise;
use warpsmith_checkpoint::{Module, Product, Uploader};
use warpsmith_layers::{LayerConfig, LinearConfig, MlpConfig, MoeConfig};

pub(crate) use ops::{ByIds, ByLogits, GatedMlp, Linear, Moe};

use crate::runtime::{Runtime, refused};
use crate::weights::{Nvfp4MlpWeights, Nvfp4MoeWeights, Nvfp4Weight};

/// Where layers are made.
pub(crate) struct Site<'a> {
    engine: &'a Engine,
    uploader: &'a Mutex<Option<Uploader<'static>>>,
    stream: Arc<CudaStream>,
}

impl<'a> Site<'a> {
    /// If it is a CUDA device.
    pub(crate) fn of(runtime: &'a Runtime) -> Option<Self> {
        match (runtime.engine(), runtime.device()) {
            (Some(engine), Device::Cuda(device)) => {
                Some(Self { engine, uploader: runtime.uploader(), stream: device.cuda_stream() })
            }
            _ => None,
        }
    }

    pub(crate) fn linear_of(&self, of: &Product<'_>, format: Format, limit: u32) -> Result<Linear> {
        let LayerConfig::Linear(config) = config(Module::Linear(of.clone()), format)? else { return Err(lost()) };
        self.made(|| {
            let weights = self.uploaded(|uploader| uploader.product(of))?;
            warpsmith_layers::Linear::new(self.engine, &self.stream, &config, weights, limit)
        })
        .map(Linear)
    }

    pub(crate) fn linear(&self, config: &LinearConfig, of: &Nvfp4Weight, limit: u32) -> Result<Linear> {
        let weights = weights::quantised(&self.stream, of)?;
        self.made(|| warpsmith_layers::Linear::new(self.engine, &self.stream, config, weights, limit)).map(Linear)
    }

    pub(crate) fn mlp_of(&self, of: &warpsmith_checkpoint::Mlp<'_>, format: Format, limit: u32) -> Result<GatedMlp> {
        let LayerConfig::Mlp(config) = config(Module::Mlp(of.clone()), format)? else { return Err(lost()) };
        self.made(|| {
            let weights = self.uploaded(|uploader| uploader.mlp(of))?;
            warpsmith_layers::GatedMlp::new(self.engine, &self.stream, &config, weights, limit)
        })
        .map(GatedMlp)
    }

    pub(crate) fn mlp(&self, config: &MlpConfig, of: &Nvfp4MlpWeights, limit: u32) -> Result<GatedMlp> {
        let weights = weights::mlp(&self.stream, of)?;
        self.made(|| warpsmith_layers::GatedMlp::new(self.engine, &self.stream, config, weights, limit)).map(GatedMlp)
    }

    pub(crate) fn moe_of(&self, of: &warpsmith_checkpoint::Moe<'_>, format: Format, limit: u32) -> Result<Moe> {
        let LayerConfig::Moe(config) = config(Module::Moe(of.clone()), format)? else { return Err(lost()) };
        self.made(|| {
            let weights = self.uploaded(|uploader| uploader.moe(of))?;
            warpsmith_layers::Moe::new(self.engine, &self.stream, &config, weights, limit)
        })
        .map(Moe)
    }

    pub(crate) fn moe(&self, config: &MoeConfig, of: &Nvfp4MoeWeights, limit: u32) -> Result<Moe> {
        let weights = weights::moe(&self.stream, of)?;
        self.made(|| warpsmith_layers::Moe::new(self.engine, &self.stream, config, weights, limit)).map(Moe)
    }

    /// By the one that all layers have: pinned memory takes long to get.
    fn uploaded<T>(&self, upload: impl FnOnce(&mut Uploader<'static>) -> warpsmith::Result<T>) -> warpsmith::Result<T> {
        let mut uploader = self.uploader.lock().unwrap_or_else(PoisonError::into_inner);
        let uploader = match &mut *uploader {
            Some(uploader) => uploader,
            none => none.insert(Uploader::new(&self.stream)?),
        };
        upload(uploader)
    }

    /// A layer whose weights are there: candle's stream is another one on each thread, which would not wait for them.
    fn made<T>(&self, make: impl FnOnce() -> warpsmith::Result<T>) -> Result<T> {
        let layer = make().map_err(refused)?;
        self.stream.synchronize().map_err(Error::wrap)?;
        Ok(layer)
    }
}

/// The layer that computes a module.
fn config(module: Module<'_>, format: Format) -> Result<LayerConfig> {
    module.layer(format).map_err(refused)
}

#[cold]
fn lost() -> Error {
    refused(warpsmith::Error::internal("a module whose layer is of another kind"))
}
