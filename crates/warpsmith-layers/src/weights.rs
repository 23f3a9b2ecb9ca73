//! Weights as a layer takes them.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream};
use half::{bf16, f16};
use warpsmith::format::Format;
use warpsmith::internal::Raise;
use warpsmith::run::{Alpha, GivenMatrix, Shared, Values};
use warpsmith::{Error, Result};

use crate::pad::padded;

/// What multiplies a product: the tensor's factor of a checkpoint, times that of the tokens.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Factor {
    /// One number for all.
    One(f32),
    /// One for each expert, `[E]`.
    Each(Shared<f32>),
}

impl From<f32> for Factor {
    fn from(factor: f32) -> Self {
        Self::One(factor)
    }
}

impl From<CudaSlice<f32>> for Factor {
    fn from(factors: CudaSlice<f32>) -> Self {
        Self::Each(factors.into())
    }
}

impl From<Shared<f32>> for Factor {
    fn from(factors: Shared<f32>) -> Self {
        Self::Each(factors)
    }
}

impl Factor {
    /// How many are in device memory, if they are.
    pub(crate) fn given(&self) -> Option<u64> {
        match self {
            Self::One(_) => None,
            Self::Each(factors) => Some(factors.elements()),
        }
    }

    #[inline]
    pub(crate) fn alpha(&self) -> Alpha<'_> {
        match self {
            Self::One(factor) => (*factor).into(),
            Self::Each(factors) => factors.into(),
        }
    }
}

/// What is added to the columns of a product.
#[derive(Debug)]
enum Addend {
    F16(CudaSlice<f16>),
    Bf16(CudaSlice<bf16>),
    F32(CudaSlice<f32>),
}

/// Memory of a bias, `[N]` or `[E, N]`.
#[derive(Debug)]
pub struct Bias(Addend);

impl From<CudaSlice<f16>> for Bias {
    fn from(values: CudaSlice<f16>) -> Self {
        Self(Addend::F16(values))
    }
}

impl From<CudaSlice<bf16>> for Bias {
    fn from(values: CudaSlice<bf16>) -> Self {
        Self(Addend::Bf16(values))
    }
}

impl From<CudaSlice<f32>> for Bias {
    fn from(values: CudaSlice<f32>) -> Self {
        Self(Addend::F32(values))
    }
}

/// The weights of one product, given away: codes `[N, K/2]` (two a byte, low nibble = even k) and block scales, of NVFP4 linear
/// e4m3 ones `[N, K/16]`, of MXFP4 e8m0 ones `[N, K/32]`; of experts `[E, N, K/2]` and `[E, N, K/16]` or `[E, N, K/32]`.
#[derive(Debug)]
#[must_use]
pub struct Quantised {
    format: Format,
    codes: CudaSlice<u8>,
    scales: CudaSlice<u8>,
    alpha: Factor,
    row_scale: Option<Shared<f32>>,
    bias: Option<Bias>,
}

impl Quantised {
    /// NVFP4, with a factor of 1.
    pub fn new(codes: CudaSlice<u8>, scales: CudaSlice<u8>) -> Self {
        Self { format: Format::Nvfp4, codes, scales, alpha: Factor::One(1.0), row_scale: None, bias: None }
    }

    /// MXFP4, for layers that are said to have such.
    pub fn mxfp4(codes: CudaSlice<u8>, scales: CudaSlice<u8>) -> Self {
        Self { format: Format::Mxfp4, ..Self::new(codes, scales) }
    }

    /// What multiplies the product.
    pub fn alpha(mut self, alpha: impl Into<Factor>) -> Self {
        self.alpha = alpha.into();
        self
    }

    /// Factors of the rows, `[N]`: of a linear layer that has them.
    pub fn row_scale(mut self, factors: impl Into<Shared<f32>>) -> Self {
        self.row_scale = Some(factors.into());
        self
    }

    /// What is added to the product, in the format that the layer has it in.
    pub fn bias(mut self, values: impl Into<Bias>) -> Self {
        self.bias = Some(values.into());
        self
    }

    /// As kernels take them.
    pub(crate) fn padded(self, stream: &Arc<CudaStream>, name: &str, padding: &Padding) -> Result<Padded> {
        let Self { format, codes, scales, alpha, row_scale, bias } = self;
        let name = |of: &str| format!("{name}: {of}");
        let Padding { groups, n, k, format: wanted } = *padding;
        let Some(block) = format.scale_block().filter(|_| format == wanted) else {
            return Err(Error::operand(format!("{} are {format}, the layer is for {wanted}", name("weights"))));
        };
        if let Some(odd) = k.iter().find(|k| !k.is_multiple_of(block)) {
            return Err(Error::operand(format!("{}: K = {odd} is no multiple of {block}", name("block scales"))));
        }
        // Rows that are padded behind each, or behind all of an expert.
        let pad = |name: String, given, per: usize| match k[0] == k[1] {
            true => padded(stream, &name, given, groups, n.map(|n| n * k[0] / per)),
            false => padded(stream, &name, given, groups * n[0], k.map(|k| k / per)),
        };
        let (codes, scales) = (pad(name("codes"), codes, 2)?, pad(name("block scales"), scales, block)?);
        let bias = bias.map(|Bias(addend)| {
            let name = name("bias");
            Ok::<_, warpsmith::Error>(match addend {
                Addend::F16(values) => Held::F16(padded(stream, &name, values, groups, n)?.into()),
                Addend::Bf16(values) => Held::Bf16(padded(stream, &name, values, groups, n)?.into()),
                Addend::F32(values) => Held::F32(padded(stream, &name, values, groups, n)?.into()),
            })
        });
        let matrix = match format {
            Format::Mxfp4 => GivenMatrix::mxfp4(codes, scales),
            _ => (codes, scales).into(),
        };
        Ok(Padded { matrix, beside: Beside { alpha, row_scale, bias: bias.transpose()? } })
    }
}

/// N and K of a product, as given and as taken: one of them differs at most; and the format of its weights.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Padding {
    pub(crate) groups: usize,
    pub(crate) n: [usize; 2],
    pub(crate) k: [usize; 2],
    pub(crate) format: Format,
}

/// Weights as kernels take them.
#[derive(Debug)]
pub(crate) struct Padded {
    pub(crate) matrix: GivenMatrix<'static>,
    pub(crate) beside: Beside,
}

/// What a product has besides its matrix.
#[derive(Debug)]
pub(crate) struct Beside {
    pub(crate) alpha: Factor,
    pub(crate) row_scale: Option<Shared<f32>>,
    pub(crate) bias: Option<Held>,
}

/// A bias that stays.
#[derive(Debug)]
pub(crate) enum Held {
    F16(Shared<f16>),
    Bf16(Shared<bf16>),
    F32(Shared<f32>),
}

impl Held {
    pub(crate) fn format(&self) -> Format {
        match self {
            Self::F16(_) => Format::F16,
            Self::Bf16(_) => Format::Bf16,
            Self::F32(_) => Format::F32,
        }
    }

    #[inline]
    pub(crate) fn values(&self) -> Values<'_> {
        match self {
            Self::F16(values) => values.into(),
            Self::Bf16(values) => values.into(),
            Self::F32(values) => values.into(),
        }
    }
}
