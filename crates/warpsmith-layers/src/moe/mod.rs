//! Experts.

mod launches;
mod weights;

use std::sync::Arc;

use cudarc::driver::CudaStream;
use warpsmith::engine::{Engine, Plan};
use warpsmith::format::Format;
use warpsmith::internal::Raise;
use warpsmith::internal::run::ExpertsKernel;
use warpsmith::pick::Policy;
use warpsmith::run::{Combiner, LaunchStream, Memory, Router, Shared, Values};
use warpsmith::spec::{Route, Scoring};
use warpsmith::{Error, Result};

use crate::config::{LayerConfig, MoeConfig};
use crate::mlp::GatedMlp;
use crate::operands::{Chunk, LayerOperands, Needs, Places, ROWS, are_enough, check_given, is_enough};
use crate::product::Product;
use crate::rounded::RowQuantiser;
use crate::step::Step;
use crate::workspace::{Layout, room};
use launches::{Launches, Part};
pub use weights::MoeWeights;

/// A [`MoeConfig`] with its weights and kernels.
#[derive(Debug)]
pub struct Moe {
    config: MoeConfig,
    limit: u32,
    /// By logits, where the layer has them.
    router: Option<Router>,
    /// By ids.
    chosen: Router,
    up: Product,
    down: Product,
    combiner: Combiner,
    /// Of few tokens all in one launch: by logits, where the layer has them, and by ids.
    few: Vec<ExpertsKernel>,
    /// Up to so many, as one launch is the faster way.
    few_tokens: u32,
    /// Multiplies tokens by their weights, where experts get them so.
    weigher: Option<Combiner>,
    /// Of x and of h, where these are rounded.
    quantisers: Option<[RowQuantiser; 2]>,
    shared: Option<GatedMlp>,
    shared_gate: Option<Shared<f32>>,
    router_bias: Option<Shared<f32>>,
    scale: f32,
}

/// Where a token's experts come from.
enum Chooses<'a> {
    Logits(Values<'a>),
    Ids(Memory<'a, i32>, Memory<'a, f32>),
}

impl Moe {
    /// For up to `limit` tokens. Waits for what has to be compiled.
    ///
    /// # Errors
    /// Those of [`MoeConfig::problems`], [`Engine::plan`], [`Engine::weights`], [`Engine::route`], [`Engine::combine`] and
    /// [`Engine::quantise`]; operand, if the weights do not fit; unsupported, if x becomes NVFP4 and the engine's kernels are
    /// batch-invariant.
    pub fn new(
        engine: &Engine,
        stream: &Arc<CudaStream>,
        config: &MoeConfig,
        weights: MoeWeights,
        limit: u32,
    ) -> Result<Self> {
        Self::made(engine, stream, config, weights, limit).map_err(|error| error.context(config.to_string()))
    }

    fn made(
        engine: &Engine,
        stream: &Arc<CudaStream>,
        config: &MoeConfig,
        weights: MoeWeights,
        limit: u32,
    ) -> Result<Self> {
        let MoeWeights { experts, shared, shared_gate, router_bias, scale } = weights;
        let [up, down] = config.of_experts(limit)?;
        let route = *config.route();
        check_bias(&route, router_bias.as_ref())?;
        let expert = config.expert();
        let (hidden, intermediate) = (expert.hidden_size(), expert.intermediate_size());
        let (first, last) = experts.split(expert.is_gated())?;
        check_given("a shared expert", shared.is_some(), config.shared_expert().is_some())?;
        check_vector("a shared expert's gate", shared_gate.as_ref(), config.has_shared_gate(), hidden)?;
        let shared = config.shared_expert().zip(shared);
        let shared = shared.map(|(of, weights)| GatedMlp::new(engine, stream, &of, weights, limit)).transpose()?;
        let by_ids = config.by_ids();
        let up = Product::new(engine, stream, &up, [intermediate, hidden], first)?;
        let down = Product::new(engine, stream, &down, [hidden, intermediate], vec![("down", last)])?;
        let few = few_tokens(engine, stream, config, [&up, &down])?;
        let arch = engine.device().arch();
        let few_tokens = few.first().map(|few| few.experts().tokens_on(arch)).transpose()?.unwrap_or(0);
        Ok(Self {
            config: *config,
            limit,
            router: (route != by_ids).then(|| engine.route(&route)).transpose()?,
            chosen: engine.route(&by_ids)?,
            up,
            down,
            few,
            few_tokens,
            combiner: engine.combine(&config.combine())?,
            weigher: config.weigh().map(|weigh| engine.combine(&weigh)).transpose()?,
            quantisers: RowQuantiser::both(engine, expert.quantisers())?,
            shared,
            shared_gate,
            router_bias,
            scale,
        })
    }

    /// What it computes.
    pub fn config(&self) -> &MoeConfig {
        &self.config
    }

    /// Its steps for so many tokens.
    #[must_use]
    pub fn steps(&self, tokens: u32) -> Vec<Step> {
        let config = LayerConfig::Moe(self.config);
        match self.few_for(tokens, self.config.route().scoring()) {
            Some(_) => Step::of_few(&config).collect(),
            None => Step::of(&config).collect(),
        }
    }

    /// What does all for so many tokens, if one launch does.
    fn few_for(&self, tokens: u32, scoring: Scoring) -> Option<&ExpertsKernel> {
        let few = self.few.iter().find(|few| few.experts().route().scoring() == scoring);
        few.filter(|_| tokens <= self.few_tokens)
    }

    /// The kernels of its experts: up and down.
    pub fn plans(&self) -> [&Plan; 2] {
        [self.up.plan(), self.down.plan()]
    }

    /// Bytes of workspace for up to `tokens` tokens at a time; the layer's limit is enough for all.
    #[must_use]
    pub fn workspace_bytes(&self, tokens: u32) -> u64 {
        self.layout(tokens.min(self.limit)).bytes()
    }

    /// Puts the layer into `stream`, with experts chosen by `logits`, `[tokens, E]`. Where the workspace is not enough for all
    /// tokens, they go in chunks, as many at a time as it is enough for.
    ///
    /// # Errors
    /// Operand, if a number, format, length or alignment does not fit, or the workspace is not enough for one token: before
    /// anything is launched; those of [`Router::launch`], [`Plan::launch_dependent`], [`Combiner::launch_dependent`] and
    /// [`Quantiser::launch_dependent`](warpsmith::run::Quantiser::launch_dependent).
    pub fn forward<'a>(
        &self,
        stream: &impl LaunchStream,
        operands: LayerOperands<'a>,
        logits: impl Into<Values<'a>>,
    ) -> Result<()> {
        self.put(stream, operands, &Chooses::Logits(logits.into()), None)
    }

    /// The same with `ids` and `weights` that were chosen elsewhere, `[tokens, k]` each. A slot whose id is no expert's, or its
    /// token's for the second time, adds nothing.
    ///
    /// # Errors
    /// As [`Moe::forward`].
    pub fn forward_chosen<'a>(
        &self,
        stream: &impl LaunchStream,
        operands: LayerOperands<'a>,
        ids: impl Into<Memory<'a, i32>>,
        weights: impl Into<Memory<'a, f32>>,
    ) -> Result<()> {
        self.put(stream, operands, &Chooses::Ids(ids.into(), weights.into()), None)
    }

    /// One part of [`Moe::forward`] alone, on what a whole one left in the same workspace: to be timed.
    ///
    /// # Errors
    /// As [`Moe::forward`].
    pub fn step<'a>(
        &self,
        stream: &impl LaunchStream,
        step: Step,
        operands: LayerOperands<'a>,
        logits: impl Into<Values<'a>>,
    ) -> Result<()> {
        self.put(stream, operands, &Chooses::Logits(logits.into()), Some(step))
    }

    fn put(
        &self,
        stream: &impl LaunchStream,
        operands: LayerOperands<'_>,
        from: &Chooses<'_>,
        only: Option<Step>,
    ) -> Result<()> {
        self.put_all(stream, operands, from, only).map_err(|error| error.context(self.config.to_string()))
    }

    fn put_all(
        &self,
        stream: &impl LaunchStream,
        mut operands: LayerOperands<'_>,
        from: &Chooses<'_>,
        only: Option<Step>,
    ) -> Result<()> {
        let expert = self.config.expert();
        let (hidden, format) = (expert.hidden_size(), expert.token_format());
        let has_residual = self.config.has_residual();
        operands.check(
            stream,
            &Needs { format, columns: [hidden; 2], limit: self.limit, has_residual, rows_begin: ROWS },
        )?;
        self.check_from(stream, operands.tokens, from)?;
        let room = room(self.limit, operands.workspace.elements(), |tokens| self.workspace_bytes(tokens))?;
        let layout = self.layout(room);
        for chunk in Chunk::each(operands.tokens, room) {
            let LayerOperands { x, residual, out, workspace, .. } = &mut operands;
            layout.cut(workspace, |pieces| {
                let part = Part { chunk, x, residual: residual.as_ref(), out, from };
                Launches { moe: self, stream, only }.put(part, pieces)
            })?;
        }
        Ok(())
    }

    fn check_from(&self, stream: &impl LaunchStream, tokens: u32, from: &Chooses<'_>) -> Result<()> {
        let route = self.config.route();
        let slots = u64::from(tokens) * u64::from(route.experts_per_token());
        let places = Places { stream, has_tokens: tokens > 0 };
        match from {
            Chooses::Ids(ids, weights) => {
                is_enough("ids", (Format::F32, ids.elements()), Format::F32, slots)?;
                is_enough("weights", (Format::F32, weights.elements()), Format::F32, slots)?;
                places.check("ids", ids, 4)?;
                places.check("weights", weights, 4)
            }
            Chooses::Logits(logits) => {
                let format = route.logits_format();
                let format = format.ok_or_else(|| Error::operand("logits given, the layer takes ids and weights"))?;
                are_enough("logits", logits, format, u64::from(tokens) * u64::from(route.expert_count()))?;
                places.check_values("logits", logits, format.bytes(1) as u64)
            }
        }
    }

    fn layout(&self, tokens: u32) -> Layout {
        let (expert, route) = (self.config.expert(), self.config.route());
        let slots = tokens * route.experts_per_token();
        let bytes = |columns: u32| expert.token_format().bytes(columns as usize) as u64;
        let of_shared = self.shared.as_ref().map_or_else(Layout::default, |shared| shared.layout(tokens));
        let routers = self.router.iter().chain([&self.chosen]).map(|router| router.workspace_bytes(tokens));
        let products = [&self.up, &self.down].map(|product| product.workspace_bytes(slots));
        let alphas = [&self.up, &self.down].map(Product::alpha_bytes);
        let [x_rounded, h_rounded] = match &self.quantisers {
            None => [[0; 3]; 2],
            Some([x, h]) => [x.bytes(tokens), h.bytes(slots)],
        };
        Layout {
            // The shared expert's is read before that of the others is written.
            h: (u64::from(slots) * bytes(expert.padded_size())).max(of_shared.h),
            // What experts get, where that is weighted, is read before this is written.
            y: u64::from(slots) * bytes(expert.hidden_size()),
            shared: if self.shared.is_some() { u64::from(tokens) * bytes(expert.hidden_size()) } else { 0 },
            ids: 4 * u64::from(slots),
            weights: 4 * u64::from(slots),
            lists: 4 * route.lists(tokens).len() as u64,
            x_rounded,
            // As `h`.
            h_rounded: [0, 1, 2].map(|at| h_rounded[at].max(of_shared.h_rounded[at])),
            alphas: alphas.into_iter().max().unwrap_or(0).max(of_shared.alphas),
            kernels: routers.chain(products).max().unwrap_or(0).max(of_shared.kernels),
        }
    }
}

/// The kernels for few tokens, if the layer has such and the device's weights are what they take. A token's bits depend on how many experts
/// others choose.
fn few_tokens(
    engine: &Engine,
    stream: &Arc<CudaStream>,
    config: &MoeConfig,
    products: [&Product; 2],
) -> Result<Vec<ExpertsKernel>> {
    let all = config.few_tokens(engine.device().arch());
    let (Some(first), false) = (all.first(), engine.picker().policy() == Policy::BatchInvariant) else {
        return Ok(Vec::new());
    };
    let layouts = first.layouts()?;
    let mut weights = products.iter().zip(&layouts);
    if !weights.all(|(product, layout)| product.prepared().is_some_and(|weights| weights.layout() == layout)) {
        return Ok(Vec::new());
    }
    match warpsmith::internal::engine::experts(engine, stream, &all) {
        // What was warmed up does not name them: the other way does without.
        Err(error) if error.is_sealed() => Ok(Vec::new()),
        made => made,
    }
}

fn check_bias(route: &Route, bias: Option<&Shared<f32>>) -> Result<()> {
    check_vector("router bias", bias, route.scoring() == Scoring::SigmoidBias, route.expert_count())
}

fn check_vector(name: &str, given: Option<&Shared<f32>>, is_wanted: bool, needed: u32) -> Result<()> {
    check_given(name, given.is_some(), is_wanted)?;
    given.map_or(Ok(()), |given| is_enough(name, (Format::F32, given.elements()), Format::F32, u64::from(needed)))
}
