//! Up and down.

use candle_core::{DType, Device, Error, Result, Tensor};
use warpsmith::spec::Activation;
use warpsmith_tune::oracle::{activate, linear};

use super::Dense;
use crate::weights::{Expected, ExpectedMlp, Nvfp4MlpWeights};

/// An MLP, or an expert.
#[derive(Clone, Debug)]
pub(crate) struct Mlp {
    activation: Activation,
    gate: Option<Dense>,
    up: Dense,
    down: Dense,
}

impl Mlp {
    /// A checkpoint's, stored in any format.
    pub(crate) fn of(mlp: &warpsmith_checkpoint::Mlp<'_>, device: &Device) -> Result<Self> {
        Ok(Self {
            activation: mlp.activation(),
            gate: mlp.gate().map(|gate| Dense::of(gate, device)).transpose()?,
            up: Dense::of(mlp.up(), device)?,
            down: Dense::of(mlp.down(), device)?,
        })
    }

    /// Those of all experts, or the only one, of weights that have been checked.
    pub(crate) fn each(of: &Nvfp4MlpWeights, expected: &ExpectedMlp, activation: Activation) -> Result<Vec<Self>> {
        let ExpectedMlp { experts, hidden, intermediate, bias, .. } = *expected;
        let product = |name, n, k| Expected { name, experts, n, k, bias, has_row_factors: false };
        let gates = of.gate.as_ref().map(|gate| Dense::each(gate, &product("gate", intermediate, hidden)));
        let mut gates = gates.transpose()?.map(Vec::into_iter);
        let ups = Dense::each(&of.up, &product("up", intermediate, hidden))?;
        let downs = Dense::each(&of.down, &product("down", hidden, intermediate))?;
        let all = ups.into_iter().zip(downs);
        Ok(all.map(|(up, down)| Self { activation, gate: gates.as_mut().and_then(Iterator::next), up, down }).collect())
    }

    /// The only one.
    pub(crate) fn one(of: &Nvfp4MlpWeights, expected: &ExpectedMlp, activation: Activation) -> Result<Self> {
        let first = Self::each(of, expected, activation)?.into_iter().next();
        first.ok_or_else(|| Error::msg("an MLP without weights"))
    }

    /// f32 `[tokens, H]` to `[tokens, H]`.
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let up = self.up.forward(x)?;
        let gate = self.gate.as_ref().map(|gate| gate.forward(x)).transpose()?;
        self.down.forward(&self.activated(gate.as_ref(), &up)?)
    }

    /// act(gate) ⊙ up, or act(up), as every kernel is judged by.
    fn activated(&self, gate: Option<&Tensor>, up: &Tensor) -> Result<Tensor> {
        let act = |x: f32| activate(self.activation, f64::from(x));
        let values = |of: &Tensor| of.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>();
        let ups = values(up)?.into_iter();
        let h: Vec<f32> = match gate {
            None => ups.map(|up| act(up) as f32).collect(),
            Some(gate) => {
                let passed = |up: f32| linear(self.activation, f64::from(up));
                ups.zip(values(gate)?).map(|(up, gate)| (act(gate) * passed(up)) as f32).collect()
            }
        };
        Tensor::from_vec(h, up.shape(), up.device())
    }
}
