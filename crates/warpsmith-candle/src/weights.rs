//! Weights that are tensors already.

use candle_core::{DType, Device, Error, Result, Shape, Storage, Tensor};
use warpsmith::format::Format;
use warpsmith::internal::Raise;

use crate::front::{dtype, is_on};
use crate::runtime::refused;

/// The NVFP4 weights of one product `[N, K]`, as checkpoints have them; of experts `[E, N, K]`.
#[derive(Clone, Debug)]
#[must_use]
pub struct Nvfp4Weight {
    pub(crate) codes: Tensor,
    pub(crate) scales: Tensor,
    pub(crate) factor: Factor,
    pub(crate) row_factors: Option<Tensor>,
    pub(crate) bias: Option<Tensor>,
}

/// What multiplies a whole tensor.
#[derive(Clone, Debug)]
pub(crate) enum Factor {
    One(f32),
    /// `[E]`.
    Each(Tensor),
}

impl Nvfp4Weight {
    /// `codes` U8 `[N, K/2]`, two a byte, low nibble first; `scales` F8E4M3 (or U8 of the same bytes) `[N, K/16]`; a factor of 1.
    pub fn new(codes: Tensor, scales: Tensor) -> Self {
        Self { codes, scales, factor: Factor::One(1.0), row_factors: None, bias: None }
    }

    /// The tensor's factor, a multiplier.
    pub fn factor(mut self, factor: f32) -> Self {
        self.factor = Factor::One(factor);
        self
    }

    /// The factors of experts, F32 `[E]`.
    pub fn factors(mut self, factors: Tensor) -> Self {
        self.factor = Factor::Each(factors);
        self
    }

    /// Factors of the rows, F32 `[N]`: of a linear layer that has them.
    pub fn row_factors(mut self, factors: Tensor) -> Self {
        self.row_factors = Some(factors);
        self
    }

    /// What is added, `[N]` or `[E, N]`, in the type that the layer's configuration says.
    pub fn bias(mut self, bias: Tensor) -> Self {
        self.bias = Some(bias);
        self
    }

    /// Refuses what is not as `of` says.
    pub(crate) fn check(&self, device: &Device, of: &Expected) -> Result<()> {
        let Expected { name, experts, n, k, bias, has_row_factors } = *of;
        let shape = |last: &[usize]| Shape::from(experts.into_iter().chain(last.iter().copied()).collect::<Vec<_>>());
        is(&self.codes, device, name, &[DType::U8], &shape(&[n, k / 2]))?;
        is(&self.scales, device, name, &[DType::F8E4M3, DType::U8], &shape(&[n, k / 16]))?;
        if let Factor::Each(factors) = &self.factor {
            is(factors, device, name, &[DType::F32], &Shape::from(experts.unwrap_or(1)))?;
        }
        given(name, "row factors", self.row_factors.as_ref(), has_row_factors)?;
        if let Some(factors) = &self.row_factors {
            is(factors, device, name, &[DType::F32], &Shape::from(n))?;
        }
        given(name, "a bias", self.bias.as_ref(), bias.is_some())?;
        match (&self.bias, bias) {
            (Some(values), Some(format)) => is(values, device, name, &[dtype(format)], &shape(&[n])),
            _ => Ok(()),
        }
    }
}

/// What a layer's configuration says of a weight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub(crate) name: &'static str,
    pub(crate) experts: Option<usize>,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) bias: Option<Format>,
    pub(crate) has_row_factors: bool,
}

/// The weights of an MLP: gate and up `[I, H]`, down `[H, I]`; of experts each `[E, …]`.
#[derive(Clone, Debug)]
#[must_use]
pub struct Nvfp4MlpWeights {
    pub(crate) gate: Option<Nvfp4Weight>,
    pub(crate) up: Nvfp4Weight,
    pub(crate) down: Nvfp4Weight,
}

impl Nvfp4MlpWeights {
    /// With a gate.
    pub fn gated(gate: Nvfp4Weight, up: Nvfp4Weight, down: Nvfp4Weight) -> Self {
        Self { gate: Some(gate), up, down }
    }

    /// Without one.
    pub fn ungated(up: Nvfp4Weight, down: Nvfp4Weight) -> Self {
        Self { gate: None, up, down }
    }

    /// Refuses what does not fit an MLP from H to I to H.
    pub(crate) fn check(&self, device: &Device, of: &ExpectedMlp) -> Result<()> {
        let ExpectedMlp { experts, hidden, intermediate, bias, is_gated } = *of;
        given("an MLP", "a gate", self.gate.as_ref(), is_gated)?;
        let expected = |name, n, k| Expected { name, experts, n, k, bias, has_row_factors: false };
        if let Some(gate) = &self.gate {
            gate.check(device, &expected("gate", intermediate, hidden))?;
        }
        self.up.check(device, &expected("up", intermediate, hidden))?;
        self.down.check(device, &expected("down", hidden, intermediate))
    }
}

/// What a layer's configuration says of an MLP's weights.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpectedMlp {
    pub(crate) experts: Option<usize>,
    pub(crate) hidden: usize,
    pub(crate) intermediate: usize,
    pub(crate) bias: Option<Format>,
    pub(crate) is_gated: bool,
}

/// The weights of experts.
#[derive(Clone, Debug)]
#[must_use]
pub struct Nvfp4MoeWeights {
    pub(crate) experts: Nvfp4MlpWeights,
    pub(crate) shared: Option<Nvfp4MlpWeights>,
    pub(crate) router: Option<Tensor>,
    pub(crate) shared_gate: Option<Tensor>,
    pub(crate) router_bias: Option<Tensor>,
    pub(crate) scale: f32,
}

impl Nvfp4MoeWeights {
    /// Of experts, each `[E, …]`.
    pub fn new(experts: Nvfp4MlpWeights) -> Self {
        Self { experts, shared: None, router: None, shared_gate: None, router_bias: None, scale: 1.0 }
    }

    /// The shared expert's.
    pub fn shared(mut self, shared: Nvfp4MlpWeights) -> Self {
        self.shared = Some(shared);
        self
    }

    /// What makes logits of tokens, `[E, H]`, in any type of floats; without it a layer takes logits, or experts that are chosen.
    pub fn router(mut self, router: Tensor) -> Self {
        self.router = Some(router);
        self
    }

    /// F32 `[1, H]`: the sigmoid of a token's product with it multiplies the shared expert's row.
    pub fn shared_gate(mut self, gate: Tensor) -> Self {
        self.shared_gate = Some(gate);
        self
    }

    /// F32 `[E]`: what is added to an expert's sigmoid before it is chosen by that.
    pub fn router_bias(mut self, bias: Tensor) -> Self {
        self.router_bias = Some(bias);
        self
    }

    /// The factor of the router's weights; 1 if it is not said.
    pub fn scale(mut self, scale: f32) -> Self {
        self.scale = scale;
        self
    }
}

/// Refuses another device, type or shape.
pub(crate) fn is(
    given: &Tensor,
    device: &Device,
    name: &'static str,
    dtypes: &[DType],
    expected: &Shape,
) -> Result<()> {
    is_on(given, device, name)?;
    if let [first, ..] = *dtypes
        && !dtypes.contains(&given.dtype())
    {
        return Err(Error::UnexpectedDType { msg: name, expected: first, got: given.dtype() });
    }
    if given.shape() == expected {
        return Ok(());
    }
    Err(Error::UnexpectedShape { msg: name.to_owned(), expected: expected.clone(), got: given.shape().clone() })
}

/// Refuses what is given and not wanted, or wanted and not given.
pub(crate) fn given<T>(name: &str, what: &str, given: Option<&T>, is_wanted: bool) -> Result<()> {
    let text = match (given.is_some(), is_wanted) {
        (true, false) => format!("{name}: {what} given, the layer has none"),
        (false, true) => format!("{name}: {what} not given, the layer has it"),
        _ => return Ok(()),
    };
    Err(refused(warpsmith::Error::operand(text)))
}

/// The bytes of a tensor of bytes or of e4m3 values, on the CPU.
pub(crate) fn bytes(of: &Tensor) -> Result<Vec<u8>> {
    use candle_core::CpuStorage;
    let of = of.contiguous()?;
    let (storage, layout) = of.storage_and_layout();
    let (from, to) = layout.contiguous_offsets().ok_or(Error::RequiresContiguous { op: "weights" })?;
    match &*storage {
        Storage::Cpu(CpuStorage::U8(bytes)) => Ok(bytes[from..to].to_vec()),
        Storage::Cpu(CpuStorage::F8E4M3(values)) => Ok(values[from..to].iter().map(|value| value.to_bits()).collect()),
        _ => Err(Error::UnsupportedDTypeForOp(of.dtype(), "weights").bt()),
    }
}
