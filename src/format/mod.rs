//! Numbers and layouts: what the bytes of an operand mean.
//!
//! e2m1 and e4m3 are the two small floats of NVFP4, [`Nvfp4Tensor`] is a host tensor made of them, and
//! [`ScaleLayout`] says where its block scales lie. [`Mxfp4Tensor`] is one of e2m1 and e8m0, [`E4m3Tensor`] one of e4m3 with a
//! factor a row. [`Prepared`] weights are the same numbers in the order that kernels for Hopper read them in, which
//! [`PreparedLayout`] specifies. f16 and bf16 are those of the `half` crate.

pub(crate) mod e2m1;
pub(crate) mod e4m3;
pub(crate) mod e8m0;
pub(crate) mod mxfp4;
mod nvfp4;
pub(crate) mod prepared;
pub(crate) mod scales;
mod tokens;

use std::fmt;
use std::str::FromStr;

use mxfp4::MX_BLOCK;
pub use mxfp4::Mxfp4Tensor;
pub use nvfp4::Nvfp4Tensor;
pub(crate) use prepared::{Coding, Words};
pub use prepared::{Mxfp4Weights, Nvfp4Weights, Prepared, PreparedLayout};
pub(crate) use scales::BLOCK;
pub use tokens::E4m3Tensor;

use crate::error::{Error, Result};

/// The element format of an operand or a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Block-scaled FP4: e2m1 codes, two a byte (low nibble = even k), one e4m3fn scale per 16 elements along k.
    Nvfp4,
    /// Block-scaled FP4: e2m1 codes as in NVFP4, one e8m0 scale (a power of two) per 32 elements along k, `[rows, K/32]`.
    Mxfp4,
    /// e4m3fn values, one a byte, and an f32 factor a row; in the [order](E4m3Tensor::position) that kernels take them in.
    E4m3,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// IEEE 754 binary32.
    F32,
}

impl Format {
    /// Every format, in the order of the documentation.
    pub const ALL: [Format; 6] = [Format::Nvfp4, Format::Mxfp4, Format::E4m3, Format::F16, Format::Bf16, Format::F32];

    /// Bytes that `elements` consecutive elements of a row take, block scales not counted.
    #[must_use]
    pub fn bytes(self, elements: usize) -> usize {
        match self {
            Format::Nvfp4 | Format::Mxfp4 => elements / 2,
            Format::E4m3 => elements,
            Format::F16 | Format::Bf16 => elements * 2,
            Format::F32 => elements * 4,
        }
    }

    /// Elements along k that share a block scale of one byte, if it has such.
    #[must_use]
    pub fn scale_block(self) -> Option<usize> {
        match self {
            Format::Nvfp4 => Some(BLOCK),
            Format::Mxfp4 => Some(MX_BLOCK),
            Format::E4m3 | Format::F16 | Format::Bf16 | Format::F32 => None,
        }
    }

    /// Whether its elements are codes of four bits, two a byte.
    pub(crate) fn is_coded(self) -> bool {
        self.scale_block().is_some()
    }

    /// Bytes that the block scales of a `[rows, k]` operand take, in this layout if it is NVFP4.
    #[must_use]
    pub fn scale_bytes(self, layout: ScaleLayout, rows: usize, k: usize) -> usize {
        match self {
            Format::Nvfp4 => layout.bytes(rows, k),
            Format::Mxfp4 => rows.saturating_mul(k / MX_BLOCK),
            Format::E4m3 | Format::F16 | Format::Bf16 | Format::F32 => 0,
        }
    }

    /// The word for it in every spelling.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Format::Nvfp4 => "nvfp4",
            Format::Mxfp4 => "mxfp4",
            Format::E4m3 => "e4m3",
            Format::F16 => "f16",
            Format::Bf16 => "bf16",
            Format::F32 => "f32",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|format| format.word() == text).ok_or_else(|| {
            Error::parse(format!("unknown format `{text}`: expected nvfp4, mxfp4, e4m3, f16, bf16 or f32"))
        })
    }
}

/// How the block scales of an NVFP4 operand lie in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ScaleLayout {
    /// `[rows, K/16]`, row-major: what checkpoints hold.
    #[default]
    Linear,
    /// 512-byte atoms of 128 rows × 4 scales, padded to whole atoms: what cuBLASLt and FlashInfer call
    /// 128x4 or "swizzled". Padding bytes may hold anything.
    Swizzled128x4,
}

impl ScaleLayout {
    /// The word for it in every spelling.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            ScaleLayout::Linear => "linear",
            ScaleLayout::Swizzled128x4 => "128x4",
        }
    }
}

impl fmt::Display for ScaleLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for ScaleLayout {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [ScaleLayout::Linear, ScaleLayout::Swizzled128x4]
            .into_iter()
            .find(|layout| layout.word() == text)
            .ok_or_else(|| Error::parse(format!("unknown scale layout `{text}`: expected linear or 128x4")))
    }
}
