//! Experts.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use warpsmith::format::Format;
use warpsmith::internal::Raise;
use warpsmith::internal::build::Experts;
use warpsmith::spec::{Activation, Arch, Combine, Problem, Quantise, Route, Scoring};
use warpsmith::{Error, Result};

use super::segments::Segments;
use super::{MlpConfig, Rounded, check_rows};

/// A mixture of experts: each token goes to k of E experts, whose rows are added by their weights, then a shared expert's row
/// and the residual, as far as there are such. An expert is an [MLP](MlpConfig) of its own weights; a shared expert is one with
/// the same activation, without biases.
///
/// With a gate of the shared expert, its row is multiplied by the sigmoid of the token's product with a vector (Qwen2-MoE,
/// Qwen3-Next). With weighted inputs, a weight multiplies what its expert gets, rounded to the format, and not what that gives
/// (Llama-4); a token then has one expert.
///
/// # Spelling
/// `moe.ACT:FORMAT:hH:iI:ROUTE[:sharedS[:shared_gate]][:weighted_inputs][:bias_F][:ungated][:mxfp4][:e4m3[:expanded]|:nvfp4][:residual][:skewS]`,
/// where ROUTE is that of a [`Route`](warpsmith::spec::Route) without `route.`, and without the format of its logits where that is f32, such as
/// `moe.silu:bf16:h2048:i768:softmax:e128:k8:renormalised`.
///
/// # A range of experts
/// A device that has some of the experts makes rows for these alone ([`MoeConfig::local`]), from logits of all experts or from ids
/// among all: its result is their part of the sum. Results of several devices are added up elsewhere, so the shared expert and the
/// residual are one device's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct MoeConfig {
    expert: MlpConfig,
    route: Route,
    shared: Option<u32>,
    has_shared_gate: bool,
    has_weighted_inputs: bool,
    has_residual: bool,
    skew: Option<u32>,
}

impl MoeConfig {
    /// From H to I to H values, f16 unless said otherwise.
    pub fn new(activation: Activation, hidden: u32, intermediate: u32, route: Route) -> Self {
        let expert = MlpConfig::new(activation, hidden, intermediate);
        Self {
            expert,
            route,
            shared: None,
            has_shared_gate: false,
            has_weighted_inputs: false,
            has_residual: false,
            skew: None,
        }
    }

    /// The format of x, all rows and the result: f16 or bf16.
    pub fn format(mut self, format: Format) -> Self {
        self.expert = self.expert.format(format);
        self
    }

    /// There is a shared expert of this intermediate size.
    pub fn shared(mut self, intermediate: u32) -> Self {
        self.shared = Some(intermediate);
        self
    }

    /// The shared expert's row is multiplied by a gate.
    pub fn shared_gate(mut self) -> Self {
        self.has_shared_gate = true;
        self
    }

    /// Weights multiply what experts get, not what they give: of one expert a token.
    pub fn weighted_inputs(mut self) -> Self {
        self.has_weighted_inputs = true;
        self
    }

    /// Every product of the experts that tokens are routed to has a bias of this format.
    pub fn bias(mut self, format: Format) -> Self {
        self.expert = self.expert.bias(format);
        self
    }

    /// The format of the weights of the experts that tokens are routed to, nvfp4 or mxfp4; a shared expert's are NVFP4.
    pub fn weights(mut self, format: Format) -> Self {
        self.expert = self.expert.weights(format);
        self
    }

    /// Products of all experts, and of a shared one, are those of e4m3 values: see [`MlpConfig::e4m3`].
    pub fn e4m3(mut self) -> Self {
        self.expert = self.expert.e4m3();
        self
    }

    /// The same by expanded weights: see [`MlpConfig::expanded`]. Few tokens are several launches then.
    pub fn expanded(mut self) -> Self {
        self.expert = self.expert.expanded();
        self
    }

    /// Products of all experts, and of a shared one, are those of NVFP4 values: see [`MlpConfig::nvfp4`].
    pub fn nvfp4(mut self) -> Self {
        self.expert = self.expert.nvfp4();
        self
    }

    /// There is no gate.
    pub fn ungated(mut self) -> Self {
        self.expert = self.expert.ungated();
        self
    }

    /// The residual is added.
    pub fn residual(mut self) -> Self {
        self.has_residual = true;
        self
    }

    /// The layer has these experts of all that are chosen from: see [`Route::local`](warpsmith::spec::Route::local).
    pub fn local(mut self, experts: Range<u32>) -> Self {
        self.route = self.route.local(experts);
        self
    }

    /// Some experts are chosen more often than others, in hundredths, up to 400: see
    /// [`Problem::skew`](warpsmith::spec::Problem::skew). It guides the choice of kernels, and no result depends on it.
    pub fn skew(mut self, hundredths: u32) -> Self {
        self.skew = Some(hundredths);
        self
    }

    /// What chooses.
    pub fn route(&self) -> &Route {
        &self.route
    }

    /// An expert that tokens are routed to: its activation, its sizes, its format and its biases are the layer's.
    pub fn expert(&self) -> &MlpConfig {
        &self.expert
    }

    /// Whether a residual is added.
    #[must_use]
    pub fn has_residual(&self) -> bool {
        self.has_residual
    }

    /// How much more often some experts are chosen than others, where that is said.
    #[must_use]
    pub fn stated_skew(&self) -> Option<u32> {
        self.skew
    }

    /// Whether the shared expert's row is multiplied by a gate.
    #[must_use]
    pub fn has_shared_gate(&self) -> bool {
        self.has_shared_gate
    }

    /// Whether weights multiply what experts get.
    #[must_use]
    pub fn has_weighted_inputs(&self) -> bool {
        self.has_weighted_inputs
    }

    /// Whether what chooses has a bias.
    #[must_use]
    pub fn has_router_bias(&self) -> bool {
        self.route.scoring() == Scoring::SigmoidBias
    }

    /// The shared expert, if there is one.
    #[must_use]
    pub fn shared_expert(&self) -> Option<MlpConfig> {
        Some(self.expert.of_size(self.shared?))
    }

    /// What sorts rows by ids that were chosen elsewhere.
    pub(crate) fn by_ids(&self) -> Route {
        let by_ids = Route::new(Scoring::Given).experts(self.route.expert_count()).k(self.route.experts_per_token());
        match self.route.local_experts() {
            all if all == (0..self.route.expert_count()) => by_ids,
            local => by_ids.local(local),
        }
    }

    /// What adds up the rows.
    pub fn combine(&self) -> Combine {
        let combine = self.of_format().k(self.route.experts_per_token()).placed();
        let combine = if self.has_weighted_inputs { combine } else { combine.weighted() };
        let combine = if self.shared.is_some() { combine.shared() } else { combine };
        let combine = if self.has_shared_gate { combine.shared_gate() } else { combine };
        if self.has_residual { combine.residual() } else { combine }
    }

    /// What multiplies tokens by their weights before experts get them, if anything does: a sum of one row.
    #[must_use]
    pub fn weigh(&self) -> Option<Combine> {
        self.has_weighted_inputs.then(|| self.of_format().k(1).weighted())
    }

    /// The whole layer for few tokens in one launch on devices of this architecture, by logits and by given ids, where that is the faster
    /// way: of products of 16-bit or e4m3 values without a bias, whose experts are gated and small and have prepared weights.
    #[must_use]
    pub fn few_tokens(&self, arch: &Arch) -> Vec<Experts> {
        let (expert, route) = (&self.expert, &self.route);
        let is_other = !expert.is_gated() || expert.bias_format().is_some() || expert.rounded() == Some(Format::Nvfp4);
        if is_other || expert.is_expanded() || self.has_weighted_inputs || self.has_shared_gate {
            return Vec::new();
        }
        let experts =
            Experts::new(expert.activation(), *route).format(expert.token_format()).weights(expert.weight_format());
        let experts = experts.sizes(expert.hidden_size(), expert.padded_size());
        let experts = if expert.rounded() == Some(Format::E4m3) { experts.e4m3() } else { experts };
        let experts = if self.shared.is_some() { experts.shared() } else { experts };
        let experts = if self.has_residual { experts.residual() } else { experts };
        let is_prepared = |problem: &Problem| problem.native(arch).is_prepared();
        let is_prepared = self.of_experts(1).is_ok_and(|products| products.iter().all(is_prepared));
        if !is_prepared || !experts.is_small() || !experts.tokens_on(arch).is_ok_and(|tokens| tokens > 0) {
            return Vec::new();
        }
        let by_ids = experts.by(self.by_ids());
        if *experts.route() == *by_ids.route() { vec![experts] } else { vec![experts, by_ids] }
    }

    /// What rounds x, h and the shared expert's h, as far as anything does.
    pub(super) fn quantisers(&self) -> Vec<Quantise> {
        let of_shared = self.shared_expert().and_then(|shared| shared.quantisers()).map(|[_, h]| h);
        self.expert.quantisers().into_iter().flatten().chain(of_shared).collect()
    }

    fn of_format(&self) -> Combine {
        let format = self.expert.token_format();
        Combine::new().hidden(self.expert.hidden_size()).rows(format).out(format)
    }

    /// Up and down, and those of the shared expert, for up to `tokens` tokens.
    ///
    /// # Errors
    /// Unsupported, with the value and its limit.
    pub fn problems(&self, tokens: u32) -> Result<Vec<Problem>> {
        let problems = || {
            let mut problems = Vec::from(self.of_experts(tokens)?);
            if let Some(shared) = self.shared_expert() {
                problems.extend(shared.problems(tokens)?);
            }
            Ok(problems)
        };
        problems().map_err(|error: Error| error.context(self.to_string()))
    }

    /// Up and down.
    pub(crate) fn of_experts(&self, tokens: u32) -> Result<[Problem; 2]> {
        let Self { expert, route, .. } = *self;
        route.check()?;
        let (experts, k) = (route.local_experts().len() as u32, route.experts_per_token());
        if self.has_shared_gate && self.shared.is_none() {
            return Err(Error::unsupported("shared_gate: there is no shared expert"));
        }
        if self.has_weighted_inputs && k != 1 {
            return Err(Error::unsupported(format!("weighted_inputs: k = {k}: must be 1")));
        }
        let rows = check_rows(tokens, k)?;
        let of_experts = |problem: Problem| {
            let problem = problem.grouped(experts).experts_per_token(k.min(experts));
            let problem = self.skew.map_or(problem, |skew| problem.skew(skew));
            problem.check().map(|()| problem)
        };
        let [up, down] = expert.of_rows(rows)?;
        Ok([of_experts(up.gathered())?, of_experts(down)?])
    }
}

const SHARED_GATE: &str = "shared_gate";
const WEIGHTED_INPUTS: &str = "weighted_inputs";

/// Behind `route.`; f32 is not said.
const WORD: &str = "route.";

impl fmt::Display for MoeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MoeConfig { expert, route, .. } = self;
        let route = route.to_string().replacen(":f32:", ":", 1);
        let route = route.strip_prefix(WORD).unwrap_or(&route);
        write!(f, "moe.{}:{route}", expert.sizes())?;
        self.shared.map_or(Ok(()), |shared| write!(f, ":shared{shared}"))?;
        let gates = [(self.has_shared_gate, SHARED_GATE), (self.has_weighted_inputs, WEIGHTED_INPUTS)];
        gates.into_iter().filter(|(has, _)| *has).try_for_each(|(_, word)| write!(f, ":{word}"))?;
        write!(f, "{}", expert.words())?;
        if self.has_residual {
            f.write_str(":residual")?;
        }
        self.skew.map_or(Ok(()), |skew| write!(f, ":skew{skew}"))
    }
}

impl FromStr for MoeConfig {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse(text).map_err(|error| error.context(format!("layer `{text}`")))
    }
}

fn parse(text: &str) -> Result<MoeConfig> {
    const GRAMMAR: &str = "moe.ACT:FORMAT:hH:iI:ROUTE[:sharedS[:shared_gate]][:weighted_inputs][:bias_F][:ungated][:mxfp4]\
                           [:e4m3[:expanded]|:nvfp4][:residual][:skewS], ROUTE that of a router";
    let mut segments = Segments::of(text, GRAMMAR);
    let activation: Activation = segments.head("moe.")?.parse()?;
    let format = segments.next().parse()?;
    let (hidden, intermediate) = (segments.extent("h")?, segments.extent("i")?);
    let is_of_others = |segment: &str| {
        ["shared", "bias_", "skew"].iter().any(|word| segment.starts_with(word))
            || [WEIGHTED_INPUTS, "ungated", "mxfp4", "residual"].contains(&segment)
            || Rounded::ALL.iter().any(|rounded| rounded.words()[0] == segment)
    };
    let route = segments.joined(|segment| !is_of_others(segment));
    let mut moe = MoeConfig::new(activation, hidden, intermediate, routed(&route)?).format(format);
    moe.shared = segments.number("shared")?;
    moe.has_shared_gate = moe.shared.is_some() && segments.is_next(SHARED_GATE);
    moe.has_weighted_inputs = segments.is_next(WEIGHTED_INPUTS);
    moe.expert = moe.expert.with_words(&mut segments)?;
    moe.has_residual = segments.is_next("residual");
    moe.skew = segments.number("skew")?;
    segments.end()?;
    // What can be spelt in two ways has one.
    if moe.to_string() == text { Ok(moe) } else { Err(Error::parse(format!("`{text}` is spelt `{moe}`"))) }
}

/// A route without its word, and without f32.
fn routed(text: &str) -> Result<Route> {
    let (scoring, rest) = text.split_once(':').unwrap_or((text, ""));
    match scoring != "given" && rest.starts_with('e') {
        true => format!("{WORD}{scoring}:f32:{rest}").parse(),
        false => format!("{WORD}{text}").parse(),
    }
}
