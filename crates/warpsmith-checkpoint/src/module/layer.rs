//! Modules as layers.

use warpsmith::format::Format;
use warpsmith::internal::Raise;
use warpsmith::{Error, Result};
use warpsmith_layers::{LayerConfig, LinearConfig, MlpConfig, MoeConfig};

use super::{Mlp, Module, Moe, Product};
use crate::weight::{Storage, Weight, format_of};

impl Module<'_> {
    /// Whether all its weights are in formats that kernels take.
    #[must_use]
    pub fn is_quantised(&self) -> bool {
        let of = |product: &Product<'_>| {
            let takes = |part: &Weight<'_>| matches!(part.storage(), Storage::Nvfp4 | Storage::Mxfp4);
            product.parts().iter().all(takes)
        };
        let of_mlp = |mlp: &Mlp<'_>| mlp.products().all(of);
        match self {
            Self::Linear(product) => of(product),
            Self::Mlp(mlp) => of_mlp(mlp),
            Self::Moe(moe) => moe.experts().iter().chain(moe.shared()).all(of_mlp),
        }
    }

    /// Bytes of codes and block scales on a device. Of MXFP4 this looks at all scales.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        // What is refused is as long as what is not.
        let format_of = |weights: Result<Format>| weights.unwrap_or(Format::Nvfp4);
        let of = |product: &Product<'_>, format: Format| {
            let (values, block) = (product.rows() * product.columns(), format.scale_block().unwrap_or(1));
            (format.bytes(values) + values / block) as u64
        };
        let of_mlp = |mlp: &Mlp<'_>, format| mlp.products().map(|product| of(product, format)).sum::<u64>();
        match self {
            Self::Linear(product) => of(product, format_of(product.weight_format(None))),
            Self::Mlp(mlp) => of_mlp(mlp, format_of(weight_format(std::slice::from_ref(mlp), None))),
            Self::Moe(moe) => {
                let format = format_of(weight_format(moe.experts(), None));
                let experts = moe.experts().iter().map(|mlp| of_mlp(mlp, format));
                experts.chain(moe.shared().map(|shared| of_mlp(shared, Format::Nvfp4))).sum()
            }
        }
    }

    /// The layer that computes it, on tokens of this format: f16 or bf16. Its weights are NVFP4, which MXFP4 becomes where that
    /// loses nothing, else MXFP4: this looks at all scales of that.
    ///
    /// # Errors
    /// Unsupported, if no layer does, or f16 has not what MXFP4 has; data, if one of its scales is NaN.
    pub fn layer(&self, format: Format) -> Result<LayerConfig> {
        match self {
            Self::Linear(of) => of.layer(format).map(LayerConfig::Linear),
            Self::Mlp(of) => of.layer(format).map(LayerConfig::Mlp),
            Self::Moe(of) => of.layer(format).map(LayerConfig::Moe),
        }
    }
}

/// The format of the weights of MLPs that one layer has, on tokens of this format.
pub(crate) fn weight_format(all: &[Mlp<'_>], tokens: Option<Format>) -> Result<Format> {
    format_of(all.iter().flat_map(Mlp::products).flat_map(Product::parts), tokens)
}

/// What multiplies codes times block scales.
#[derive(Clone, Debug, PartialEq)]
pub enum Multiplier {
    /// One factor.
    All(f32),
    /// One for each row, `[N]`.
    Rows(Vec<f32>),
}

impl Multiplier {
    /// Of parts one below the other: their factors and rows.
    pub(crate) fn of(parts: impl Iterator<Item = (f32, usize)> + Clone) -> Self {
        let first = parts.clone().next().map_or(1.0, |(factor, _)| factor);
        match parts.clone().any(|(factor, _)| factor.to_bits() != first.to_bits()) {
            true => Self::Rows(parts.flat_map(|(factor, rows)| std::iter::repeat_n(factor, rows)).collect()),
            false => Self::All(first),
        }
    }
}

impl Product<'_> {
    /// The format of its weights, on tokens of this format.
    pub(crate) fn weight_format(&self, tokens: Option<Format>) -> Result<Format> {
        format_of(self.parts().iter(), tokens)
    }

    /// The factor of every row, `[N]`, where parts have factors of their own; else that of the first part is for all. They multiply
    /// what [`Weight::values`] gives; what multiplies weights on a device is [`Product::multiplier`].
    #[must_use]
    pub fn row_factors(&self) -> Option<Vec<f32>> {
        match Multiplier::of(self.parts().iter().map(|part| (part.factor(), part.rows()))) {
            Multiplier::All(_) => None,
            Multiplier::Rows(factors) => Some(factors),
        }
    }

    /// What multiplies the weights that [`Uploader::product`](crate::Uploader::product) sends. Parts that are MXFP4 and become
    /// NVFP4 have each a power of two; finding it looks at all scales of theirs.
    ///
    /// # Errors
    /// Data, if one of those is NaN; unsupported, if weights that are used together have no format in common.
    pub fn multiplier(&self) -> Result<Multiplier> {
        self.multiplier_in(self.weight_format(None)?)
    }

    fn multiplier_in(&self, format: Format) -> Result<Multiplier> {
        let factor = |part: &Weight<'_>| Ok((part.factor_in(format)?, part.rows()));
        Ok(Multiplier::of(self.parts().iter().map(factor).collect::<Result<Vec<_>>>()?.into_iter()))
    }

    fn layer(&self, format: Format) -> Result<LinearConfig> {
        // Before scales are looked at, which takes as long as there are rows.
        let linear = LinearConfig::new(extent(self.rows())?, extent(self.columns())?).format(format);
        let weights = self.weight_format(Some(format))?;
        let linear = linear.weights(weights);
        let linear = match self.multiplier_in(weights)? {
            Multiplier::All(_) => linear,
            Multiplier::Rows(_) => linear.row_scale(),
        };
        Ok(self.bias().map_or(linear, |bias| linear.bias(bias.format)))
    }
}

impl Mlp<'_> {
    fn layer(&self, format: Format) -> Result<MlpConfig> {
        let mlp = MlpConfig::new(self.activation(), extent(self.hidden_size())?, extent(self.intermediate_size())?);
        let mlp = if self.gate().is_some() { mlp } else { mlp.ungated() };
        let mlp = mlp.format(format).weights(weight_format(std::slice::from_ref(self), Some(format))?);
        Ok(self.up().bias().map_or(mlp, |bias| mlp.bias(bias.format)))
    }
}

impl Moe<'_> {
    fn layer(&self, format: Format) -> Result<MoeConfig> {
        let Some(first) = self.experts().first() else { return Err(Error::unsupported("a layer without experts")) };
        let route = self.rule().route();
        let (hidden, intermediate) = (extent(first.hidden_size())?, extent(first.intermediate_size())?);
        let moe = MoeConfig::new(first.activation(), hidden, intermediate, route).format(format);
        let moe = if first.gate().is_some() { moe } else { moe.ungated() };
        let moe = moe.weights(weight_format(self.experts(), Some(format))?);
        let range = self.range();
        let all = route.expert_count() as usize;
        let moe = if range.len() == all { moe } else { moe.local(extent(range.start)?..extent(range.end)?) };
        let moe = first.up().bias().map_or(moe, |bias| moe.bias(bias.format));
        let moe = if self.rule().weighs_inputs() { moe.weighted_inputs() } else { moe };
        let moe = match self.shared() {
            None => moe,
            Some(shared) => moe.shared(extent(shared.intermediate_size())?),
        };
        match self.shared_gate() {
            Some(gate) if gate.bias().is_some() => Err(Error::unsupported("a shared expert's gate with a bias")),
            Some(_) => Ok(moe.shared_gate()),
            None => Ok(moe),
        }
    }
}

fn extent(value: usize) -> Result<u32> {
    u32::try_from(value).map_err(|_| Error::unsupported(format!("an extent of {value}, {} at most", u32::MAX)))
}
