//! Layers with random weights and tokens: on a device, and as the oracle sees them.
//!
//! Weights of real size are a block of random codes and scales over and over, so that the host knows every element of what
//! takes gigabytes on the device. The block's length has no factor in common with rows, so that no two rows are alike.

mod device;
mod tokens;
mod weights;
mod work;

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream};
use warpsmith::engine::Engine;
use warpsmith::format::Format;
use warpsmith::spec::Activation;
use warpsmith::{Error, Result};
use warpsmith_layers::{GatedMlp, LayerConfig, Linear, MlpConfig, MlpWeights, Moe, MoeConfig, MoeWeights};

pub use device::{DeviceLayer, DeviceTokens, Found};
pub use tokens::HostTokens;
use weights::{Drawn, Held, HostWeight, Shape};
pub use work::Work;

use crate::oracle::layer::{self, Chosen, Expert, Kind, SharedExpert, Taken};
use crate::oracle::route::{Given, route};
use crate::oracle::{Matrix, Reference, gemm};
use warpsmith::internal::Raise;

/// Of a random bias of a router, what leaves routing even.
const EVEN_BIAS: f32 = 0.05;

/// A layer with random weights.
#[derive(Debug)]
pub struct HostLayer {
    config: LayerConfig,
    drawn: Drawn,
    /// Gate (if there is one), up, down; of a linear layer the only one.
    weights: Vec<HostWeight>,
    /// Of the shared expert.
    shared: Vec<HostWeight>,
    /// `[E]`, where the router has one.
    router_bias: Vec<f32>,
    /// `[H]`, where the shared expert has a gate.
    shared_gate: Vec<f32>,
    scale: f32,
}

impl HostLayer {
    /// Factors such that products are of the order of 1; those of gate and up are 10 times apart.
    #[must_use]
    pub fn random(config: &LayerConfig, seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let drawn = Drawn::new(&mut rng);
        let mut mlp = |groups, of: &MlpConfig| {
            let (hidden, intermediate, format) = (of.hidden_size(), of.intermediate_size(), of.weight_format());
            let is_e4m3 = of.rounded() == Some(Format::E4m3);
            let (up, down) = (
                Shape { format, groups, n: intermediate, k: hidden, is_e4m3 },
                Shape { format, groups, n: hidden, k: intermediate, is_e4m3 },
            );
            let sizes = [(up, 5.0), (up, 0.5), (down, 1.0)];
            let kept = sizes.into_iter().skip(usize::from(!of.is_gated()));
            kept.map(|(shape, size)| HostWeight::random(&mut rng, &drawn, shape, size, of.bias_format())).collect()
        };
        let mut shared = Vec::new();
        let weights = match config {
            LayerConfig::Linear(linear) => {
                let [k, n] = linear.columns();
                let (format, bias) = (linear.weight_format(), linear.bias_format());
                let shape = Shape { format, groups: 1, n, k, is_e4m3: linear.rounded() == Some(Format::E4m3) };
                let weight = HostWeight::random(&mut rng, &drawn, shape, 2.0, bias);
                vec![if linear.has_row_scale() { weight.with_row_factors(&mut rng) } else { weight }]
            }
            LayerConfig::Mlp(of) => mlp(1, of),
            LayerConfig::Moe(of) => {
                if let Some(of) = of.shared_expert() {
                    shared = mlp(1, &of);
                }
                mlp(of.route().local_experts().len() as u32, of.expert())
            }
            _ => Vec::new(),
        };
        let router_bias = match config {
            LayerConfig::Moe(of) if of.has_router_bias() => {
                (0..of.route().expert_count()).map(|_| 0.2 * rng.f32() - 0.1).collect()
            }
            _ => Vec::new(),
        };
        let shared_gate = match config {
            // Products of the order of 1.
            LayerConfig::Moe(of) if of.has_shared_gate() => {
                let hidden = of.expert().hidden_size();
                (0..hidden).map(|_| 4.0 * (rng.f32() - 0.5) / (hidden as f32).sqrt()).collect()
            }
            _ => Vec::new(),
        };
        Self { config: *config, drawn, weights, shared, router_bias, shared_gate, scale: 1.5 }
    }

    /// What it computes.
    pub fn config(&self) -> &LayerConfig {
        &self.config
    }

    /// Codes, block scales and the factor of each group of a product's weights, on a device: those of gate (if there is one), up and
    /// down by their numbers.
    ///
    /// # Errors
    /// Data, if there is no such product; driver, if the device has no room.
    pub fn given(&self, stream: &Arc<CudaStream>, nth: usize) -> Result<(CudaSlice<u8>, CudaSlice<u8>, &[f32])> {
        let weight =
            self.weights.get(nth).ok_or_else(|| Error::data(format!("{} has no product {nth}", self.config)))?;
        let (codes, scales) = weight.given(stream, &self.drawn.upload(stream)?)?;
        Ok((codes, scales, weight.alpha()))
    }

    /// The factor of the router's weights.
    #[must_use]
    pub fn scale(&self) -> f32 {
        self.scale
    }

    /// On a device, for up to `limit` tokens.
    ///
    /// # Errors
    /// Those of the layer's; driver, if the device has no room.
    pub fn upload(&self, engine: &Engine, stream: &Arc<CudaStream>, limit: u32) -> Result<DeviceLayer> {
        let drawn = self.drawn.upload(stream)?;
        let mlp = |of: &MlpConfig, weights: &[HostWeight]| {
            let mut weights = weights.iter().map(|weight| weight.upload(stream, &drawn, of.bias_format()));
            let mut next = || weights.next().unwrap_or_else(|| Err(Error::internal("a layer without weights")));
            Ok::<_, Error>(match of.is_gated() {
                true => MlpWeights::gated(next()?, next()?, next()?),
                false => MlpWeights::ungated(next()?, next()?),
            })
        };
        Ok(match &self.config {
            LayerConfig::Linear(of) => {
                let weight = self.weights.first().ok_or_else(|| Error::internal("a layer without weights"))?;
                let weights = weight.upload(stream, &drawn, of.bias_format())?;
                DeviceLayer::Linear(Linear::new(engine, stream, of, weights, limit)?)
            }
            LayerConfig::Mlp(of) => {
                DeviceLayer::Mlp(GatedMlp::new(engine, stream, of, mlp(of, &self.weights)?, limit)?)
            }
            LayerConfig::Moe(of) => {
                let mut weights = MoeWeights::new(mlp(of.expert(), &self.weights)?).scale(self.scale);
                if let Some(shared) = of.shared_expert() {
                    weights = weights.shared(mlp(&shared, &self.shared)?);
                }
                if of.has_router_bias() {
                    let bias = stream.clone_htod(&self.router_bias)?;
                    weights = weights.router_bias(bias);
                }
                if of.has_shared_gate() {
                    let vector = stream.clone_htod(&self.shared_gate)?;
                    weights = weights.shared_gate(vector);
                }
                DeviceLayer::Moe(Moe::new(engine, stream, of, weights, limit)?)
            }
            _ => return Err(Error::unsupported(format!("{}: no such layer is checked", self.config))),
        })
    }

    /// With so small a bias of the router that experts get about as many tokens each, as a trained one sees to: the random one
    /// sends some five times as many as others.
    #[must_use]
    pub fn evenly_routed(mut self) -> Self {
        self.router_bias.iter_mut().for_each(|bias| *bias *= EVEN_BIAS);
        self
    }

    /// Where the router sends the tokens: ids and weights, as [`DeviceLayer::forward_chosen`] takes them; nothing, where there is
    /// none.
    ///
    /// # Errors
    /// Those of the oracle.
    pub fn chosen(&self, tokens: &HostTokens) -> Result<(Vec<i32>, Vec<f32>)> {
        let LayerConfig::Moe(of) = &self.config else { return Ok((Vec::new(), Vec::new())) };
        let given = Given::Logits(&tokens.logits, &self.router_bias);
        let routed = route(of.route(), tokens.count() as u32, given, 1, self.scale)?;
        Ok((routed.ids, routed.stated))
    }

    /// What should come out for some tokens, in some columns: `[which, columns]`. Where rows become NVFP4, all tokens are those of one
    /// call, and count.
    ///
    /// # Errors
    /// Data, if a token or a column is not there; those of the oracle.
    pub fn reference(&self, tokens: &HostTokens, which: &[usize], columns: &[usize]) -> Result<Reference> {
        let [inputs, outputs] = tokens.columns();
        if which.iter().any(|token| *token >= tokens.count()) || columns.iter().any(|column| *column >= outputs) {
            return Err(Error::data(format!("{} tokens of {outputs} columns have not all of them", tokens.count())));
        }
        if self.config.rounded() == Some(Format::Nvfp4) && !which.iter().copied().eq(0..tokens.count()) {
            // Of all tokens together are the factors.
            let all: Vec<usize> = (0..tokens.count()).collect();
            let rows: Vec<_> = which.iter().copied().map(Some).collect();
            return Ok(self.reference(tokens, &all, columns)?.of_rows(&rows));
        }
        let of_tokens = |values: &[f32], columns: usize| -> Vec<f32> {
            which.iter().flat_map(|token| &values[token * columns..(token + 1) * columns]).copied().collect()
        };
        let x = Matrix::new(which.len(), inputs, of_tokens(&tokens.x, inputs))?;
        match &self.config {
            LayerConfig::Linear(of) => {
                let Some(weight) = self.weights.first() else { return Err(Error::internal("a layer without weights")) };
                let held = weight.held(0, columns);
                let weight = weight.decoded(&self.drawn, 0, columns, &held)?;
                let (products, scaling) = Taken::new(&x, of.rounded())?.products(&weight)?;
                gemm(&products, scaling, Activation::None, of.token_format())
            }
            LayerConfig::Mlp(of) => {
                let held = held(&self.weights, 0, columns);
                layer::mlp(&x, &self.expert(&self.weights, 0, columns, &held)?, kind_of(of))
            }
            LayerConfig::Moe(of) => self.of_experts(of, tokens, &x, which, columns),
            _ => Err(Error::unsupported(format!("{}: no such layer is checked", self.config))),
        }
    }

    fn of_experts(
        &self,
        of: &MoeConfig,
        tokens: &HostTokens,
        x: &Matrix<'_>,
        which: &[usize],
        columns: &[usize],
    ) -> Result<Reference> {
        let (experts, local, outputs) =
            (of.route().expert_count() as usize, of.route().local_experts(), tokens.columns()[1]);
        let logits: Vec<f32> =
            which.iter().flat_map(|token| &tokens.logits[token * experts..][..experts]).copied().collect();
        let given = Given::Logits(&logits, &self.router_bias);
        let routed = route(of.route(), which.len() as u32, given, 1, self.scale)?;
        let residual: Vec<f32> = match of.has_residual() {
            true => which
                .iter()
                .flat_map(|token| columns.iter().map(move |column| tokens.residual[token * outputs + column]))
                .collect(),
            false => Vec::new(),
        };
        let is_local = |id: &i32| u32::try_from(*id).is_ok_and(|id| local.contains(&id));
        let ids: Vec<i32> =
            routed.ids.iter().map(|id| if is_local(id) { id - local.start as i32 } else { -1 }).collect();
        let of_group: Vec<_> = (0..local.len()).map(|group| held(&self.weights, group, columns)).collect();
        let of_shared = held(&self.shared, 0, columns);
        let shared = match self.shared.is_empty() {
            true => None,
            false => Some(self.expert(&self.shared, 0, columns, &of_shared)?),
        };
        let expert = |id: usize| self.expert(&self.weights, id, columns, &of_group[id]);
        let kind = kind_of(of.expert());
        let gates = if of.has_shared_gate() { layer::gates(x, &self.shared_gate)? } else { Vec::new() };
        let shared = shared.as_ref().map(|expert| SharedExpert { expert, weights: &gates, x: Some(x) });
        if of.has_weighted_inputs() {
            let plain = vec![(1.0, 0.0); routed.ids.len()];
            let chosen = Chosen { ids: &ids, weights: &plain, residual: &residual };
            return layer::moe(&layer::weighed(x, &routed.stated, kind.format)?, &chosen, expert, shared, kind);
        }
        let chosen = Chosen { ids: &ids, weights: &routed.weights, residual: &residual };
        layer::moe(x, &chosen, expert, shared, kind)
    }

    /// One expert, with the rows of `down` that `columns` are.
    fn expert<'a>(&self, of: &[HostWeight], group: usize, columns: &[usize], held: &'a [Held]) -> Result<Expert<'a>> {
        let (all, last) = (rows_of(of, columns), of.len() - 1);
        let decoded = |nth: usize| of[nth].decoded(&self.drawn, group, &all[nth], &held[nth]);
        let gate = if last > 1 { Some(decoded(0)?) } else { None };
        Ok(Expert { gate, up: decoded(last - 1)?, down: decoded(last)? })
    }
}

/// Rows of each product that are asked for: all, and of the last `columns`.
fn rows_of(of: &[HostWeight], columns: &[usize]) -> Vec<Vec<usize>> {
    let rows = |(nth, weight): (usize, &HostWeight)| match nth + 1 == of.len() {
        true => columns.to_vec(),
        false => (0..weight.shape().n as usize).collect(),
    };
    of.iter().enumerate().map(rows).collect()
}

/// What the rows of these have beside their values.
fn held(of: &[HostWeight], group: usize, columns: &[usize]) -> Vec<Held> {
    of.iter().zip(rows_of(of, columns)).map(|(weight, rows)| weight.held(group, &rows)).collect()
}

fn kind_of(of: &MlpConfig) -> Kind {
    Kind { activation: of.activation(), format: of.token_format(), rounded: of.rounded() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_with_a_bias_can_be_even() {
        let config: LayerConfig = "moe.silu:bf16:h64:i64:sigmoid_bias:e48:k8:renormalised".parse().unwrap();
        let most_and_least = |layer: &HostLayer| {
            let mut rows = [0; 48];
            for seed in 0..8 {
                let (ids, _) = layer.chosen(&HostTokens::random(&config, 128, 0.0, seed)).unwrap();
                ids.iter().for_each(|id| rows[*id as usize] += 1);
            }
            (rows.iter().copied().max().unwrap(), rows.iter().copied().min().unwrap())
        };
        // 171 each in the mean.
        let (most, least) = most_and_least(&HostLayer::random(&config, 3).evenly_routed());
        assert!(most < 210 && least > 130, "{least} to {most}");
        let (most, least) = most_and_least(&HostLayer::random(&config, 3));
        assert!(most > 3 * least, "{least} to {most}");
    }
}
