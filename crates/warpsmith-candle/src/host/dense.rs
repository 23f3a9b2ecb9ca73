//! One product.

use candle_core::{DType, Device, Error, Result, Tensor};
use warpsmith::format::{Nvfp4Tensor, ScaleLayout};
use warpsmith_checkpoint::Product;

use crate::runtime::refused;
use crate::weights::{Expected, Factor, Nvfp4Weight, bytes};

/// `y = x·Wᵀ + b` in f32.
#[derive(Clone, Debug)]
pub(crate) struct Dense {
    /// `[N, K]`.
    weight: Tensor,
    bias: Option<Tensor>,
}

impl Dense {
    /// A checkpoint's, stored in any format.
    pub(crate) fn of(product: &Product<'_>, device: &Device) -> Result<Self> {
        let values = product.dequantised().map_err(refused)?;
        let weight = Tensor::from_vec(values, (product.rows(), product.columns()), device)?;
        let bias = product.bias().map(|bias| Tensor::new(bias.values.as_slice(), device));
        Ok(Self { weight, bias: bias.transpose()? })
    }

    /// Of any type of floats.
    pub(crate) fn plain(weight: &Tensor) -> Result<Self> {
        Ok(Self { weight: weight.to_dtype(DType::F32)?.contiguous()?, bias: None })
    }

    /// Those of all experts, or the only one, of weights that have been checked.
    pub(crate) fn each(of: &Nvfp4Weight, expected: &Expected) -> Result<Vec<Self>> {
        let Expected { experts, n, k, .. } = *expected;
        let factors = match &of.factor {
            Factor::One(factor) => vec![*factor; experts.unwrap_or(1)],
            Factor::Each(factors) => factors.to_vec1()?,
        };
        let row_factors = of.row_factors.as_ref().map(|factors| factors.reshape((n, 1))).transpose()?;
        let one = |(expert, factor): (usize, f32)| {
            let own = |all: &Tensor| if experts.is_some() { all.get(expert) } else { Ok(all.clone()) };
            let (codes, scales) = (bytes(&own(&of.codes)?)?, bytes(&own(&of.scales)?)?);
            let values = Nvfp4Tensor::new(n, k, codes, scales, ScaleLayout::Linear, factor).map_err(refused)?;
            let weight = Tensor::from_vec(values.dequantise(), (n, k), of.codes.device())?;
            let weight = match &row_factors {
                Some(factors) => weight.broadcast_mul(factors)?,
                None => weight,
            };
            let bias = of.bias.as_ref().map(|bias| own(bias)?.to_dtype(DType::F32));
            Ok(Self { weight, bias: bias.transpose()? })
        };
        factors.into_iter().enumerate().map(one).collect()
    }

    /// The only one.
    pub(crate) fn one(of: &Nvfp4Weight, expected: &Expected) -> Result<Self> {
        let first = Self::each(of, expected)?.into_iter().next();
        first.ok_or_else(|| Error::msg(format!("{}: no weights", expected.name)))
    }

    /// f32 `[tokens, K]` to `[tokens, N]`.
    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = x.matmul(&self.weight.t()?)?;
        match &self.bias {
            Some(bias) => y.broadcast_add(bias),
            None => Ok(y),
        }
    }
}
