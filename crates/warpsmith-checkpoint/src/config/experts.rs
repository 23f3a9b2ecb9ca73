//! How a model's experts are chosen.

use warpsmith::internal::Raise;
use warpsmith::spec::{Route, Scoring};
use warpsmith::{Error, Result};

use super::Architecture;
use super::fields::Fields;

/// The rule of layers with experts.
#[derive(Clone, Debug)]
pub struct Experts {
    intermediate: usize,
    route: Route,
    scale: f32,
    shared: Option<usize>,
    is_shared_gated: bool,
    weighs_inputs: bool,
}

impl Experts {
    /// I of an expert.
    #[must_use]
    pub fn intermediate_size(&self) -> usize {
        self.intermediate
    }

    /// What chooses, from f32 logits.
    pub fn route(&self) -> Route {
        self.route
    }

    /// The factor of the router's weights.
    #[must_use]
    pub fn scale(&self) -> f32 {
        self.scale
    }

    /// I of what is shared, if anything is.
    #[must_use]
    pub fn shared_size(&self) -> Option<usize> {
        self.shared
    }

    /// Whether the shared expert's row is weighted by the sigmoid of a projection of the token (Qwen2-MoE, Qwen3-Next).
    #[must_use]
    pub fn is_shared_gated(&self) -> bool {
        self.is_shared_gated
    }

    /// Whether weights multiply what experts get, not what they give (Llama-4).
    #[must_use]
    pub fn weighs_inputs(&self) -> bool {
        self.weighs_inputs
    }
}

impl Architecture {
    /// The rule, where some layers have experts.
    pub(super) fn experts(self, fields: &Fields<'_>) -> Result<Option<Experts>> {
        let softmax = Route::new(Scoring::Softmax);
        let renormalised = |route: Route, is: bool| if is { route.renormalised() } else { route };
        let (count, k, intermediate) = match self {
            Self::Mixtral | Self::GptOss | Self::Llama4 => (
                fields.first(&["num_local_experts", "num_experts"])?,
                fields.first(&["num_experts_per_tok", "experts_per_token"])?,
                fields.number("intermediate_size")?,
            ),
            Self::Qwen2Moe | Self::Qwen3Moe | Self::Qwen3Next => (
                fields.first(&["num_experts", "num_local_experts"])?,
                fields.number("num_experts_per_tok")?,
                fields.number("moe_intermediate_size")?,
            ),
            Self::DeepseekV2 | Self::DeepseekV3 | Self::Glm4Moe | Self::NemotronH => {
                let Some(count) = fields.count("n_routed_experts")? else { return Ok(None) };
                (count, fields.number("num_experts_per_tok")?, fields.number("moe_intermediate_size")?)
            }
            Self::Llama | Self::Mistral | Self::Qwen2 | Self::Qwen3 | Self::Phi3 | Self::Nemotron => return Ok(None),
        };
        let shared = match self {
            Self::Qwen2Moe | Self::Qwen3Next => fields.count("shared_expert_intermediate_size")?,
            Self::DeepseekV2 | Self::DeepseekV3 | Self::Glm4Moe => {
                fields.count("n_shared_experts")?.map(|shared| shared * intermediate)
            }
            Self::NemotronH => {
                let of_one = fields.count("moe_shared_expert_intermediate_size")?;
                fields.count("n_shared_experts")?.and_then(|shared| Some(shared * of_one?))
            }
            Self::Llama4 => Some(intermediate),
            _ => None,
        };
        let norm = fields.flag("norm_topk_prob")?;
        let route = match self {
            Self::Mixtral | Self::GptOss => softmax.renormalised(),
            Self::Qwen2Moe | Self::Qwen3Moe => renormalised(softmax, norm.unwrap_or(false)),
            Self::Qwen3Next => renormalised(softmax, norm.unwrap_or(true)),
            Self::Llama4 => Route::new(Scoring::Sigmoid),
            Self::DeepseekV2 => {
                let method = fields.word("topk_method")?.unwrap_or("greedy");
                match method {
                    "greedy" => softmax,
                    "group_limited_greedy" => grouped(softmax, fields)?,
                    other => return Err(Error::unsupported(format!("config.json: `topk_method` is {other:?}"))),
                }
            }
            _ => {
                let found = fields.word("scoring_func")?.unwrap_or("sigmoid");
                if found != "sigmoid" {
                    return Err(Error::unsupported(format!(
                        "config.json: `scoring_func` is {found:?}, expected sigmoid"
                    )));
                }
                renormalised(grouped(Route::new(Scoring::SigmoidBias), fields)?, norm.unwrap_or(true))
            }
        };
        let route = route.experts(as_u32(count)).k(as_u32(k));
        route.check().map_err(|error| error.context("config.json"))?;
        let scale = match self {
            Self::DeepseekV2 | Self::DeepseekV3 | Self::Glm4Moe | Self::NemotronH => {
                fields.real("routed_scaling_factor")?.unwrap_or(1.0)
            }
            _ => 1.0,
        };
        Ok(Some(Experts {
            intermediate,
            route,
            scale: scale as f32,
            shared,
            is_shared_gated: matches!(self, Self::Qwen2Moe | Self::Qwen3Next),
            weighs_inputs: self == Self::Llama4,
        }))
    }
}

/// With the groups that experts lie in, if there are several.
fn grouped(route: Route, fields: &Fields<'_>) -> Result<Route> {
    Ok(match (fields.count("n_group")?, fields.count("topk_group")?) {
        (Some(groups @ 2..), Some(kept)) => route.groups(as_u32(groups), as_u32(kept)),
        _ => route,
    })
}

/// Saturated: what is too much is refused by whoever takes it.
fn as_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
