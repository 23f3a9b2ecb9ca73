//! Experts.

use candle_core::{DType, Device, Result, Tensor};
use warpsmith::spec::{Route, Scoring};
use warpsmith_tune::oracle::route::{Given, route};

use super::{Dense, Mlp};
use crate::runtime::refused;

/// Which experts tokens go to, and what their weights multiply.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) route: Route,
    /// `[E]`, or empty.
    pub(crate) bias: Vec<f32>,
    pub(crate) scale: f32,
    /// What experts get, and not what they give.
    pub(crate) weighs_inputs: bool,
}

/// A mixture of experts.
#[derive(Clone, Debug)]
pub(crate) struct Moe {
    pub(crate) rule: Rule,
    /// The model's number of the first of them.
    pub(crate) first: usize,
    pub(crate) experts: Vec<Mlp>,
    pub(crate) shared: Option<Mlp>,
    /// `[1, H]`: the sigmoid of its product weighs the shared expert's row.
    pub(crate) shared_gate: Option<Dense>,
}

/// What is chosen, `[tokens, k]`.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    /// Less than 0 for none.
    ids: Vec<i32>,
    weights: Vec<f32>,
}

impl Rule {
    /// By logits `[tokens, E]`, as every router is judged by: ties go to the lower expert.
    pub(crate) fn by_logits(&self, logits: &Tensor) -> Result<Chosen> {
        let tokens = extent(logits.dim(0)?)?;
        let logits: Vec<f32> = logits.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?;
        let given = Given::Logits(&logits, &self.bias);
        let routed = route(&self.route, tokens, given, 1, self.scale).map_err(refused)?;
        let weights = routed.weights.iter().map(|(weight, _)| *weight as f32).collect();
        Ok(Chosen { ids: routed.ids, weights })
    }

    /// As given: an id that is no expert's, or its token's for the second time, is none.
    pub(crate) fn by_ids(&self, ids: &Tensor, weights: &Tensor) -> Result<Chosen> {
        let tokens = extent(ids.dim(0)?)?;
        let ids: Vec<i32> = match ids.dtype() {
            DType::U32 => ids.flatten_all()?.to_vec1::<u32>()?.into_iter().map(u32::cast_signed).collect(),
            _ => ids.flatten_all()?.to_vec1()?,
        };
        let by_ids = Route::new(Scoring::Given).experts(self.route.expert_count()).k(self.route.experts_per_token());
        let routed = route(&by_ids, tokens, Given::Ids(&ids), 1, 1.0).map_err(refused)?;
        Ok(Chosen { ids: routed.ids, weights: weights.flatten_all()?.to_vec1()? })
    }
}

fn extent(tokens: usize) -> Result<u32> {
    u32::try_from(tokens).map_err(candle_core::Error::wrap)
}

impl Moe {
    /// A checkpoint's, stored in any format.
    pub(crate) fn of(moe: &warpsmith_checkpoint::Moe<'_>, device: &Device) -> Result<Self> {
        let rule = moe.rule();
        Ok(Self {
            rule: Rule {
                route: rule.route(),
                bias: moe.router_bias().to_vec(),
                scale: rule.scale(),
                weighs_inputs: rule.weighs_inputs(),
            },
            first: moe.range().start,
            experts: moe.experts().iter().map(|expert| Mlp::of(expert, device)).collect::<Result<_>>()?,
            shared: moe.shared().map(|shared| Mlp::of(shared, device)).transpose()?,
            shared_gate: moe.shared_gate().map(|gate| Dense::of(gate, device)).transpose()?,
        })
    }

    /// `[tokens, H]` to `[tokens, H]`: only experts that are hit compute, each all its tokens at once.
    pub(crate) fn forward(&self, x: &Tensor, chosen: &Chosen) -> Result<Tensor> {
        let (dtype, device) = (x.dtype(), x.device());
        let x = x.to_dtype(DType::F32)?;
        let mut sum = match &self.shared {
            None => x.zeros_like()?,
            Some(shared) => self.weighted(shared.forward(&x)?, &x)?,
        };
        let k = self.rule.route.experts_per_token() as usize;
        for (hit, expert) in self.hits(chosen).into_iter().zip(&self.experts).filter(|(hit, _)| !hit.is_empty()) {
            let rows: Vec<u32> = hit.iter().map(|slot| extent(slot / k)).collect::<Result<_>>()?;
            let weights: Vec<f32> = hit.iter().map(|slot| chosen.weights[*slot]).collect();
            let (rows, weights) = (Tensor::new(rows, device)?, Tensor::from_vec(weights, (hit.len(), 1), device)?);
            let given = x.index_select(&rows, 0)?;
            let made = if self.rule.weighs_inputs {
                // Rounded, as the model's own code has it.
                expert.forward(&given.broadcast_mul(&weights)?.to_dtype(dtype)?.to_dtype(DType::F32)?)?
            } else {
                expert.forward(&given)?.broadcast_mul(&weights)?
            };
            sum = sum.index_add(&rows, &made, 0)?;
        }
        sum.to_dtype(dtype)
    }

    /// The slots of each expert.
    fn hits(&self, chosen: &Chosen) -> Vec<Vec<usize>> {
        let mut hits = vec![Vec::new(); self.experts.len()];
        for (slot, id) in chosen.ids.iter().enumerate() {
            let own = usize::try_from(*id).ok().and_then(|id| id.checked_sub(self.first));
            if let Some(hit) = own.and_then(|own| hits.get_mut(own)) {
                hit.push(slot);
            }
        }
        hits
    }

    /// The shared expert's rows by their gate, if there is one.
    fn weighted(&self, rows: Tensor, x: &Tensor) -> Result<Tensor> {
        let Some(gate) = &self.shared_gate else { return Ok(rows) };
        rows.broadcast_mul(&(gate.forward(x)?.neg()?.exp()? + 1.0)?.recip()?)
    }
}
