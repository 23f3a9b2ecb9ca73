//! Experts.

use candle_core::{DType, Device, Module, Result, Shape, Tensor};
use warpsmith::internal::Raise;
use warpsmith::spec::Route;
use warpsmith_checkpoint::{Checkpoint, Moe};
use warpsmith_layers::MoeConfig;

#[cfg(feature = "cuda")]
use crate::cuda::{self, Site};
use crate::front::{Front, Tokens, dtype};
use crate::host::{self, Dense, Rule};
use crate::linear::is_other;
use crate::mlp::expected;
use crate::runtime::{Runtime, refused};
use crate::weights::{ExpectedMlp, Nvfp4MoeWeights, given, is};

/// A mixture of experts on NVFP4 weights, with its router: `[.., H]` to `[.., H]`.
///
/// [`forward`](Module::forward) makes logits by candle's own product in f32, as checkpoints' routers do. On CUDA nothing of the
/// routing comes to the host.
#[derive(Debug)]
pub struct Nvfp4Moe {
    front: Front,
    route: Route,
    router: Option<Dense>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Host(host::Moe),
    #[cfg(feature = "cuda")]
    Cuda(Box<cuda::Moe>),
}

impl Nvfp4Moe {
    /// The experts of this name, such as `model.layers.0.mlp`, with their router where the checkpoint has it.
    ///
    /// # Errors
    /// Those of [`Checkpoint::module`]; if the module is another; those of [`Nvfp4Moe::of`].
    pub fn load(checkpoint: &Checkpoint, name: &str, runtime: &Runtime, tokens: impl Into<Tokens>) -> Result<Self> {
        let tokens = tokens.into().or(checkpoint.config().token_format());
        match checkpoint.module(name).map_err(refused)? {
            warpsmith_checkpoint::Module::Moe(moe) => Self::of(&moe, runtime, tokens),
            other => Err(is_other(name, &other, "a mixture of experts")),
        }
    }

    /// Experts of a checkpoint, or a part of them. Waits for what has to be compiled and uploaded.
    ///
    /// # Errors
    /// If there are no experts, or tokens are neither F16 nor BF16. On CUDA those of
    /// [`Module::layer`](warpsmith_checkpoint::Module::layer), [`Uploader::moe`](warpsmith_checkpoint::Uploader::moe) and
    /// [`Moe::new`](warpsmith_layers::Moe::new).
    pub fn of(moe: &Moe<'_>, runtime: &Runtime, tokens: impl Into<Tokens>) -> Result<Self> {
        let tokens = tokens.into();
        let format = tokens.format()?;
        let Some(first) = moe.experts().first() else {
            return Err(refused(warpsmith::Error::unsupported("a layer without experts")));
        };
        let front = front(runtime, dtype(format), first.hidden_size(), tokens.limit());
        let route = moe.rule().route();
        let router = moe.router().map(|router| Dense::of(router, runtime.device())).transpose()?;
        #[cfg(feature = "cuda")]
        if let Some(site) = Site::of(runtime) {
            let place = Place::Cuda(Box::new(site.moe_of(moe, format, tokens.limit())?));
            return Ok(Self { front, route, router, place });
        }
        Ok(Self { front, route, router, place: Place::Host(host::Moe::of(moe, runtime.device())?) })
    }

    /// From tensors, which are copied, for up to `limit` tokens. Logits are converted to the type that the configuration has
    /// them in.
    ///
    /// # Errors
    /// Those of [`MoeConfig::problems`]; if it adds a residual, which a module is not given; if a tensor is on another device, or
    /// of another type or shape; on CUDA those of [`Moe::new`](warpsmith_layers::Moe::new).
    pub fn new(config: &MoeConfig, weights: &Nvfp4MoeWeights, runtime: &Runtime, limit: u32) -> Result<Self> {
        let _ = config.problems(limit).map_err(refused)?;
        if config.has_residual() {
            let text = format!("{config}: a module is given no residual; add it to the result");
            return Err(refused(warpsmith::Error::unsupported(text)));
        }
        let (device, route) = (runtime.device(), *config.route());
        let experts = route.expert_count() as usize;
        let of_experts = of_experts(config);
        weights.experts.check(device, &of_experts)?;
        let of_shared = config.shared_expert().map(|shared| (shared.activation(), expected(&shared, None)));
        given("experts", "a shared expert", weights.shared.as_ref(), of_shared.is_some())?;
        if let (Some(shared), Some((_, of_shared))) = (&weights.shared, &of_shared) {
            shared.check(device, of_shared)?;
        }
        given("experts", "a shared expert's gate", weights.shared_gate.as_ref(), config.has_shared_gate())?;
        if let Some(gate) = &weights.shared_gate {
            is(gate, device, "a shared expert's gate", &[DType::F32], &Shape::from((1, of_experts.hidden)))?;
        }
        given("experts", "a router's bias", weights.router_bias.as_ref(), config.has_router_bias())?;
        if let Some(bias) = &weights.router_bias {
            is(bias, device, "a router's bias", &[DType::F32], &Shape::from(experts))?;
        }
        if let Some(router) = &weights.router {
            let floats = [DType::F32, DType::BF16, DType::F16];
            is(router, device, "a router", &floats, &Shape::from((experts, of_experts.hidden)))?;
        }
        let front = front(runtime, dtype(config.expert().token_format()), of_experts.hidden, limit);
        let router = weights.router.as_ref().map(Dense::plain).transpose()?;
        #[cfg(feature = "cuda")]
        if let Some(site) = Site::of(runtime) {
            return Ok(Self { front, route, router, place: Place::Cuda(Box::new(site.moe(config, weights, limit)?)) });
        }
        let bias = weights.router_bias.as_ref().map(Tensor::to_vec1::<f32>).transpose()?.unwrap_or_default();
        let shared = weights.shared.as_ref().zip(of_shared);
        let shared = shared.map(|(weights, (activation, expected))| host::Mlp::one(weights, &expected, activation));
        let place = Place::Host(host::Moe {
            rule: Rule { route, bias, scale: weights.scale, weighs_inputs: config.has_weighted_inputs() },
            first: route.local_experts().start as usize,
            experts: host::Mlp::each(&weights.experts, &of_experts, config.expert().activation())?,
            shared: shared.transpose()?,
            shared_gate: weights.shared_gate.as_ref().map(Dense::plain).transpose()?,
        });
        Ok(Self { front, route, router, place })
    }

    /// With experts chosen by `logits` `[.., E]`, of any type of floats.
    ///
    /// # Errors
    /// As for [`forward`](Module::forward); if the layer takes experts that are chosen, or logits are not so many.
    pub fn forward_with_logits(&self, x: &Tensor, logits: &Tensor) -> Result<Tensor> {
        self.front.forward(x, |x| {
            let logits = self.front.beside("logits", logits, x.dim(0)?, self.route.expert_count() as usize)?;
            self.by_logits(x, &logits)
        })
    }

    /// With the experts `ids` `[.., k]`, U32 or I32, and their `weights` `[.., k]`, of any type of floats. A slot whose id is no
    /// expert's, or its token's for the second time, adds nothing.
    ///
    /// # Errors
    /// As for [`forward`](Module::forward); if ids are of another type, or these are not so many.
    pub fn forward_chosen(&self, x: &Tensor, ids: &Tensor, weights: &Tensor) -> Result<Tensor> {
        let k = self.route.experts_per_token() as usize;
        if !matches!(ids.dtype(), DType::U32 | DType::I32) {
            let (msg, got) = ("ids of experts", ids.dtype());
            return Err(candle_core::Error::UnexpectedDType { msg, expected: DType::U32, got });
        }
        self.front.forward(x, |x| {
            let tokens = x.dim(0)?;
            let ids = self.front.beside("ids", ids, tokens, k)?;
            let weights = self.front.beside("weights", weights, tokens, k)?.to_dtype(DType::F32)?;
            match &self.place {
                Place::Host(moe) => moe.forward(x, &moe.rule.by_ids(&ids, &weights)?),
                #[cfg(feature = "cuda")]
                Place::Cuda(layer) => x.apply_op3_no_bwd(&ids, &weights, &cuda::ByIds(layer)),
            }
        })
    }

    /// What chooses.
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// Where it runs.
    pub fn device(&self) -> &Device {
        &self.front.device
    }

    /// The type of x and of the result.
    pub fn dtype(&self) -> DType {
        self.front.dtype
    }

    fn by_logits(&self, x: &Tensor, logits: &Tensor) -> Result<Tensor> {
        let Some(format) = self.route.logits_format() else {
            let text = "logits given, the layer takes experts that are chosen".to_owned();
            return Err(refused(warpsmith::Error::operand(text)));
        };
        let logits = logits.to_dtype(dtype(format))?;
        match &self.place {
            Place::Host(moe) => moe.forward(x, &moe.rule.by_logits(&logits)?),
            #[cfg(feature = "cuda")]
            Place::Cuda(layer) => x.apply_op2_no_bwd(&logits, &cuda::ByLogits(layer)),
        }
    }
}

impl Module for Nvfp4Moe {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.front.forward(x, |x| {
            let Some(router) = &self.router else {
                let text = "the layer has no router: give it logits, or experts that are chosen".to_owned();
                return Err(refused(warpsmith::Error::operand(text)));
            };
            self.by_logits(x, &router.forward(&x.to_dtype(DType::F32)?)?)
        })
    }
}

fn front(runtime: &Runtime, dtype: DType, hidden: usize, limit: u32) -> Front {
    let device = runtime.device().clone();
    Front { op: "warpsmith-moe", device, dtype, inputs: hidden, outputs: hidden, limit }
}

fn of_experts(config: &MoeConfig) -> ExpectedMlp {
    expected(config.expert(), Some(config.route().local_experts().len()))
}
