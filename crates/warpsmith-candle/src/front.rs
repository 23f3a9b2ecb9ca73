//! What a layer takes and gives, whatever computes it.

use candle_core::{D, DType, Device, Error, Result, Shape, Tensor};
use warpsmith::format::Format;
use warpsmith::internal::Raise;

use crate::runtime::refused;

/// How many tokens a layer takes at a time, and in which type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Tokens {
    limit: u32,
    dtype: Option<DType>,
}

impl Tokens {
    /// So many at most, in the type that the checkpoint was made in: BF16, where that is neither F16 nor BF16.
    pub fn up_to(limit: u32) -> Self {
        Self { limit, dtype: None }
    }

    /// In this type: F16 or BF16.
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// Where nothing is said, as the checkpoint says.
    pub(crate) fn or(mut self, format: Option<Format>) -> Self {
        let of_checkpoint = if format == Some(Format::F16) { DType::F16 } else { DType::BF16 };
        self.dtype = self.dtype.or(Some(of_checkpoint));
        self
    }

    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    /// BF16, where nothing is said.
    pub(crate) fn format(&self) -> Result<Format> {
        match self.dtype.unwrap_or(DType::BF16) {
            DType::F16 => Ok(Format::F16),
            DType::BF16 => Ok(Format::Bf16),
            got => Err(Error::UnexpectedDType { msg: "tokens are F16 or BF16", expected: DType::BF16, got }),
        }
    }
}

impl From<u32> for Tokens {
    fn from(limit: u32) -> Self {
        Self::up_to(limit)
    }
}

/// candle's word for a format of tokens, logits or biases.
pub(crate) fn dtype(format: Format) -> DType {
    match format {
        Format::F16 => DType::F16,
        Format::Bf16 => DType::BF16,
        _ => DType::F32,
    }
}

/// What a layer takes and gives.
#[derive(Clone, Debug)]
pub(crate) struct Front {
    pub(crate) op: &'static str,
    pub(crate) device: Device,
    pub(crate) dtype: DType,
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    pub(crate) limit: u32,
}

impl Front {
    /// Refuses what does not fit, computes `[tokens, inputs]` to `[tokens, outputs]`, and gives the result x's leading
    /// dimensions. Nothing is computed for no tokens.
    pub(crate) fn forward(&self, x: &Tensor, compute: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
        self.is_here(x)?;
        if x.dtype() != self.dtype {
            return Err(Error::UnexpectedDType { msg: "x of a layer", expected: self.dtype, got: x.dtype() });
        }
        let mut dims = x.dims().to_vec();
        let columns = dims.last_mut().map(|last| std::mem::replace(last, self.outputs));
        let tokens: usize = dims.iter().rev().skip(1).product();
        if columns != Some(self.inputs) {
            let (msg, expected) = (format!("x of {}: the last dimension", self.op), Shape::from((tokens, self.inputs)));
            return Err(Error::UnexpectedShape { msg, expected, got: x.shape().clone() });
        }
        if tokens > self.limit as usize {
            let (op, limit) = (self.op, self.limit);
            return Err(refused(warpsmith::Error::operand(format!(
                "{op}: {tokens} tokens, the layer is for {limit} at most"
            ))));
        }
        if tokens == 0 {
            // Of this shape, without an allocation.
            return x.narrow(D::Minus1, 0, 1)?.expand(dims);
        }
        compute(&x.contiguous()?.reshape((tokens, self.inputs))?)?.reshape(dims)
    }

    /// What goes with the tokens: `[tokens, columns]` of what is `[.., columns]`.
    pub(crate) fn beside(&self, name: &str, given: &Tensor, tokens: usize, columns: usize) -> Result<Tensor> {
        self.is_here(given)?;
        if given.dims().last() != Some(&columns) || given.elem_count() != tokens * columns {
            let (msg, expected) = (format!("{name} of {}", self.op), Shape::from((tokens, columns)));
            return Err(Error::UnexpectedShape { msg, expected, got: given.shape().clone() });
        }
        given.contiguous()?.reshape((tokens, columns))
    }

    fn is_here(&self, given: &Tensor) -> Result<()> {
        is_on(given, &self.device, self.op)
    }
}

/// Refuses a tensor on another device.
pub(crate) fn is_on(given: &Tensor, device: &Device, op: &'static str) -> Result<()> {
    if given.device().same_device(device) {
        return Ok(());
    }
    Err(Error::DeviceMismatchBinaryOp { lhs: given.device().location(), rhs: device.location(), op })
}
