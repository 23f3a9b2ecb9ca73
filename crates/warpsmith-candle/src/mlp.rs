//! Up and down.

use candle_core::{DType, Device, Module, Result, Tensor};
use warpsmith_checkpoint::{Checkpoint, Mlp};
use warpsmith_layers::MlpConfig;

#[cfg(feature = "cuda")]
use crate::cuda::{self, Site};
use crate::front::{Front, Tokens, dtype};
use crate::host;
use crate::linear::is_other;
use crate::runtime::{Runtime, refused};
use crate::weights::{ExpectedMlp, Nvfp4MlpWeights};

/// `y = act(x·Wgateᵀ) ⊙ (x·Wupᵀ) · Wdownᵀ`, or without a gate `act(x·Wupᵀ) · Wdownᵀ`, on NVFP4 weights: `[.., H]` to `[.., H]`.
#[derive(Debug)]
pub struct Nvfp4GatedMlp {
    front: Front,
    place: Place,
}

// One a layer.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
enum Place {
    Host(host::Mlp),
    #[cfg(feature = "cuda")]
    Cuda(cuda::GatedMlp),
}

impl Nvfp4GatedMlp {
    /// The MLP of this name, such as `model.layers.0.mlp`.
    ///
    /// # Errors
    /// Those of [`Checkpoint::module`]; if the module is another; those of [`Nvfp4GatedMlp::of`].
    pub fn load(checkpoint: &Checkpoint, name: &str, runtime: &Runtime, tokens: impl Into<Tokens>) -> Result<Self> {
        let tokens = tokens.into().or(checkpoint.config().token_format());
        match checkpoint.module(name).map_err(refused)? {
            warpsmith_checkpoint::Module::Mlp(mlp) => Self::of(&mlp, runtime, tokens),
            other => Err(is_other(name, &other, "an MLP")),
        }
    }

    /// An MLP of a checkpoint, or a part of one. Waits for what has to be compiled and uploaded.
    ///
    /// # Errors
    /// If tokens are neither F16 nor BF16. On CUDA those of [`Module::layer`](warpsmith_checkpoint::Module::layer),
    /// [`Uploader::mlp`](warpsmith_checkpoint::Uploader::mlp) and [`GatedMlp::new`](warpsmith_layers::GatedMlp::new).
    pub fn of(mlp: &Mlp<'_>, runtime: &Runtime, tokens: impl Into<Tokens>) -> Result<Self> {
        let tokens = tokens.into();
        let format = tokens.format()?;
        let front = front(runtime, dtype(format), mlp.hidden_size(), tokens.limit());
        #[cfg(feature = "cuda")]
        if let Some(site) = Site::of(runtime) {
            return Ok(Self { front, place: Place::Cuda(site.mlp_of(mlp, format, tokens.limit())?) });
        }
        Ok(Self { front, place: Place::Host(host::Mlp::of(mlp, runtime.device())?) })
    }

    /// From tensors, which are copied, for up to `limit` tokens.
    ///
    /// # Errors
    /// Those of [`MlpConfig::problems`]; if a tensor is on another device, or of another type or shape; on CUDA those of
    /// [`GatedMlp::new`](warpsmith_layers::GatedMlp::new).
    pub fn new(config: &MlpConfig, weights: &Nvfp4MlpWeights, runtime: &Runtime, limit: u32) -> Result<Self> {
        let _ = config.problems(limit).map_err(refused)?;
        let expected = expected(config, None);
        weights.check(runtime.device(), &expected)?;
        let front = front(runtime, dtype(config.token_format()), expected.hidden, limit);
        #[cfg(feature = "cuda")]
        if let Some(site) = Site::of(runtime) {
            return Ok(Self { front, place: Place::Cuda(site.mlp(config, weights, limit)?) });
        }
        Ok(Self { front, place: Place::Host(host::Mlp::one(weights, &expected, config.activation())?) })
    }

    /// Where it runs.
    pub fn device(&self) -> &Device {
        &self.front.device
    }

    /// The type of x and of the result.
    pub fn dtype(&self) -> DType {
        self.front.dtype
    }
}

impl Module for Nvfp4GatedMlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.front.forward(x, |x| match &self.place {
            Place::Host(mlp) => mlp.forward(&x.to_dtype(DType::F32)?)?.to_dtype(self.front.dtype),
            #[cfg(feature = "cuda")]
            Place::Cuda(layer) => x.apply_op1_no_bwd(layer),
        })
    }
}

fn front(runtime: &Runtime, dtype: DType, hidden: usize, limit: u32) -> Front {
    let device = runtime.device().clone();
    Front { op: "warpsmith-mlp", device, dtype, inputs: hidden, outputs: hidden, limit }
}

/// What an MLP's weights are, or those of so many.
pub(crate) fn expected(config: &MlpConfig, experts: Option<usize>) -> ExpectedMlp {
    ExpectedMlp {
        experts,
        hidden: config.hidden_size() as usize,
        intermediate: config.intermediate_size() as usize,
        bias: config.bias_format(),
        is_gated: config.is_gated(),
    }
}
