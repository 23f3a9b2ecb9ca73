//! The weights of experts.

use warpsmith::run::Shared;

use crate::mlp::MlpWeights;

/// The weights of a [`MoeConfig`](crate::MoeConfig).
#[derive(Debug)]
#[must_use]
pub struct MoeWeights {
    pub(super) experts: MlpWeights,
    pub(super) shared: Option<MlpWeights>,
    pub(super) shared_gate: Option<Shared<f32>>,
    pub(super) router_bias: Option<Shared<f32>>,
    pub(super) scale: f32,
}

impl MoeWeights {
    /// Of experts, each `[E, …]` as [`MlpWeights`] says.
    pub fn new(experts: MlpWeights) -> Self {
        Self { experts, shared: None, shared_gate: None, router_bias: None, scale: 1.0 }
    }

    /// The shared expert's.
    pub fn shared(mut self, shared: MlpWeights) -> Self {
        self.shared = Some(shared);
        self
    }

    /// `[H]`: the sigmoid of a token's product with it multiplies the shared expert's row.
    pub fn shared_gate(mut self, vector: impl Into<Shared<f32>>) -> Self {
        self.shared_gate = Some(vector.into());
        self
    }

    /// `[E]`: what is added to an expert's sigmoid before it is chosen by that ([`Scoring::SigmoidBias`](warpsmith::spec::Scoring::SigmoidBias)).
    pub fn router_bias(mut self, bias: impl Into<Shared<f32>>) -> Self {
        self.router_bias = Some(bias.into());
        self
    }

    /// The factor of the router's weights; 1 if it is not said.
    pub fn scale(mut self, scale: f32) -> Self {
        self.scale = scale;
        self
    }
}
