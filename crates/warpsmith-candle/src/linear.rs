//! One product.

use candle_core::{DType, Device, Module, Result, Tensor};
use warpsmith_checkpoint::{Checkpoint, Product};
use warpsmith_layers::LinearConfig;

#[cfg(feature = "cuda")]
use crate::cuda::{self, Site};
use crate::front::{Front, Tokens, dtype};
use crate::host::Dense;
use crate::runtime::{Runtime, refused};
use crate::weights::{Expected, Nvfp4Weight};

/// `y = α·x·Wᵀ + b` on NVFP4 weights: `[.., K]` to `[.., N]`.
#[derive(Debug)]
pub struct Nvfp4Linear {
    front: Front,
    place: Place,
}

// One a layer.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
enum Place {
    Host(Dense),
    #[cfg(feature = "cuda")]
    Cuda(cuda::Linear),
}

impl Nvfp4Linear {
    /// The linear layer of this name, such as `model.layers.0.self_attn.o_proj`.
    ///
    /// # Errors
    /// Those of [`Checkpoint::module`]; if the module is another; those of [`Nvfp4Linear::of`].
    pub fn load(checkpoint: &Checkpoint, name: &str, runtime: &Runtime, tokens: impl Into<Tokens>) -> Result<Self> {
        use warpsmith_checkpoint::Module::Linear;
        let tokens = tokens.into().or(checkpoint.config().token_format());
        match checkpoint.module(name).map_err(refused)? {
            Linear(product) => Self::of(&product, runtime, tokens),
            other => Err(is_other(name, &other, "linear layer")),
        }
    }

    /// A product of a checkpoint, or a part of one. Waits for what has to be compiled and uploaded.
    ///
    /// # Errors
    /// If tokens are neither F16 nor BF16. On CUDA those of [`Module::layer`](warpsmith_checkpoint::Module::layer),
    /// [`Uploader::product`](warpsmith_checkpoint::Uploader::product) and [`Linear::new`](warpsmith_layers::Linear::new).
    pub fn of(product: &Product<'_>, runtime: &Runtime, tokens: impl Into<Tokens>) -> Result<Self> {
        let tokens = tokens.into();
        let format = tokens.format()?;
        let [inputs, outputs] = [product.columns(), product.rows()];
        let front = front(runtime, dtype(format), [inputs, outputs], tokens.limit());
        #[cfg(feature = "cuda")]
        if let Some(site) = Site::of(runtime) {
            let place = Place::Cuda(site.linear_of(product, format, tokens.limit())?);
            return Ok(Self { front, place });
        }
        Ok(Self { front, place: Place::Host(Dense::of(product, runtime.device())?) })
    }

    /// From tensors, which are copied, for up to `limit` tokens.
    ///
    /// # Errors
    /// Those of [`LinearConfig::problem`]; if a tensor is on another device, or of another type or shape; on CUDA those of
    /// [`Linear::new`](warpsmith_layers::Linear::new).
    pub fn new(config: &LinearConfig, weight: &Nvfp4Weight, runtime: &Runtime, limit: u32) -> Result<Self> {
        let problem = config.problem(limit).map_err(refused)?;
        let [inputs, outputs] = config.columns().map(|extent| extent as usize);
        let (bias, has_row_factors) = (config.bias_format(), problem.has_row_scale());
        let expected = Expected { name: "weight", experts: None, n: outputs, k: inputs, bias, has_row_factors };
        weight.check(runtime.device(), &expected)?;
        let front = front(runtime, dtype(config.token_format()), [inputs, outputs], limit);
        #[cfg(feature = "cuda")]
        if let Some(site) = Site::of(runtime) {
            return Ok(Self { front, place: Place::Cuda(site.linear(config, weight, limit)?) });
        }
        Ok(Self { front, place: Place::Host(Dense::one(weight, &expected)?) })
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

impl Module for Nvfp4Linear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.front.forward(x, |x| match &self.place {
            Place::Host(dense) => dense.forward(&x.to_dtype(DType::F32)?)?.to_dtype(self.front.dtype),
            #[cfg(feature = "cuda")]
            Place::Cuda(layer) => x.apply_op1_no_bwd(layer),
        })
    }
}

fn front(runtime: &Runtime, dtype: DType, [inputs, outputs]: [usize; 2], limit: u32) -> Front {
    Front { op: "warpsmith-linear", device: runtime.device().clone(), dtype, inputs, outputs, limit }
}

/// A module of another kind.
pub(crate) fn is_other(name: &str, found: &warpsmith_checkpoint::Module<'_>, expected: &str) -> candle_core::Error {
    use warpsmith::internal::Raise;
    use warpsmith_checkpoint::Module::{Linear, Mlp};
    let found = match found {
        Linear(_) => "a linear layer",
        Mlp(_) => "an MLP",
        _ => "a mixture of experts",
    };
    refused(warpsmith::Error::data(format!("module `{name}` is {found}, expected: {expected}")))
}
