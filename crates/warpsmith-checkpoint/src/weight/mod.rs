//! A matrix of weights, in whatever format its file has.

mod find;
mod grid;
mod packed;

use std::ops::Range;

use safetensors::Dtype;
use warpsmith::format::Format;
use warpsmith::internal::Raise;
use warpsmith::internal::format::{BLOCK, MX_BLOCK, e2m1, e4m3, e8m0};
use warpsmith::{Error, Result};

pub(crate) use find::{Stack, find, find_stack};
pub(crate) use grid::Grid;
pub use packed::Packed;
pub(crate) use packed::{Source, format_of};

use crate::folder::decoded;

/// A matrix of weights `[N, K]`, as it lies in its file: nothing is read before it is looked at.
#[derive(Clone, Debug)]
pub struct Weight<'a> {
    name: String,
    stored: Stored<'a>,
}

/// How a matrix is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Storage {
    /// e2m1 codes, an e4m3 scale for 16 of them, a factor for all.
    Nvfp4,
    /// e2m1 codes, an e8m0 scale for 32 of them.
    Mxfp4,
    /// e4m3 values, a factor for all.
    Fp8,
    /// f16, bf16 or f32 values.
    Plain(Format),
}

impl std::fmt::Display for Storage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nvfp4 => f.write_str("NVFP4"),
            Self::Mxfp4 => f.write_str("MXFP4"),
            Self::Fp8 => f.write_str("FP8"),
            Self::Plain(format) => format.fmt(f),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Stored<'a> {
    /// Codes two a byte, low nibble first.
    Nvfp4 {
        codes: Grid<'a>,
        scales: Grid<'a>,
        factor: Factor,
    },
    Mxfp4 {
        codes: Grid<'a>,
        scales: Grid<'a>,
    },
    Fp8 {
        values: Grid<'a>,
        factor: f32,
    },
    Plain {
        dtype: Dtype,
        values: Grid<'a>,
    },
}

/// What all block scales of a tensor are multiplied by, or divided by (compressed-tensors).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Factor {
    Multiply(f32),
    Divide(f32),
}

impl Factor {
    /// As a multiplier.
    pub(crate) fn multiplier(self) -> f32 {
        match self {
            Self::Multiply(factor) => factor,
            Self::Divide(divisor) => 1.0 / divisor,
        }
    }

    /// As it is stored.
    pub(crate) fn number(self) -> f32 {
        let (Self::Multiply(number) | Self::Divide(number)) = self;
        number
    }

    /// A scale times it, rounded once.
    pub(crate) fn times(self, scale: f32) -> f32 {
        match self {
            Self::Multiply(factor) => scale * factor,
            Self::Divide(divisor) => scale / divisor,
        }
    }
}

impl<'a> Weight<'a> {
    /// The name that its tensors begin with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it is stored.
    #[must_use]
    pub fn storage(&self) -> Storage {
        match self.stored {
            Stored::Nvfp4 { .. } => Storage::Nvfp4,
            Stored::Mxfp4 { .. } => Storage::Mxfp4,
            Stored::Fp8 { .. } => Storage::Fp8,
            Stored::Plain { dtype, .. } => Storage::Plain(match dtype {
                Dtype::F16 => Format::F16,
                Dtype::BF16 => Format::Bf16,
                _ => Format::F32,
            }),
        }
    }

    /// N.
    #[must_use]
    pub fn rows(&self) -> usize {
        match self.stored {
            Stored::Nvfp4 { codes, .. } | Stored::Mxfp4 { codes, .. } => codes.rows(),
            Stored::Fp8 { values, .. } | Stored::Plain { values, .. } => values.rows(),
        }
    }

    /// K.
    #[must_use]
    pub fn columns(&self) -> usize {
        match self.stored {
            Stored::Nvfp4 { codes, .. } | Stored::Mxfp4 { codes, .. } => 2 * codes.columns(),
            Stored::Fp8 { values, .. } | Stored::Plain { values, .. } => values.columns(),
        }
    }

    /// What all values are multiplied by that [`Weight::values`] gives; 1, where there is no such factor.
    #[must_use]
    pub fn factor(&self) -> f32 {
        match self.stored {
            Stored::Nvfp4 { factor, .. } => factor.multiplier(),
            Stored::Fp8 { factor, .. } => factor,
            Stored::Mxfp4 { .. } | Stored::Plain { .. } => 1.0,
        }
    }

    /// The values of a row without the [factor](Weight::factor): each is exact in f32.
    ///
    /// # Errors
    /// Data, if a scale is NaN; the row and the block are named.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn values(&self, row: usize) -> Result<Vec<f32>> {
        let stored = match self.stored {
            Stored::Nvfp4 { codes, scales, .. } => Stored::Nvfp4 { codes, scales, factor: Factor::Multiply(1.0) },
            Stored::Fp8 { values, .. } => Stored::Fp8 { values, factor: 1.0 },
            other => other,
        };
        Self { name: self.name.clone(), stored }.dequantised(row)
    }

    /// Values as they lie, of one that is not quantised.
    pub(crate) fn plain(&self) -> Option<(Dtype, Grid<'a>)> {
        match self.stored {
            Stored::Plain { dtype, values } => Some((dtype, values)),
            _ => None,
        }
    }

    /// Some rows: a part that a device of several has.
    ///
    /// # Errors
    /// Data, if they are not there.
    pub fn some_rows(self, rows: Range<usize>) -> Result<Self> {
        self.every(rows, 1)
    }

    /// Every `step`-th row of some.
    pub(crate) fn every(self, rows: Range<usize>, step: usize) -> Result<Self> {
        let of = |grid: Grid<'a>| grid.some_rows(rows.clone(), step);
        let stored = match self.stored {
            Stored::Nvfp4 { codes, scales, factor } => {
                Ok(Stored::Nvfp4 { codes: of(codes)?, scales: of(scales)?, factor })
            }
            Stored::Mxfp4 { codes, scales } => {
                of(codes).and_then(|codes| Ok(Stored::Mxfp4 { codes, scales: of(scales)? }))
            }
            Stored::Fp8 { values, factor } => of(values).map(|values| Stored::Fp8 { values, factor }),
            Stored::Plain { dtype, values } => of(values).map(|values| Stored::Plain { dtype, values }),
        };
        self.with(stored)
    }

    /// Some columns: a part that a device of several has.
    ///
    /// # Errors
    /// Data, if they are not there, or where there are block scales, do not begin or end with a block.
    pub fn some_columns(self, columns: Range<usize>) -> Result<Self> {
        let part = |grid: Grid<'a>, of: usize| {
            if !columns.start.is_multiple_of(of) || !columns.end.is_multiple_of(of) {
                let (from, to) = (columns.start, columns.end);
                return Err(Error::data(format!("columns {from} to {to}: both must be multiples of the block's {of}")));
            }
            grid.some_columns(columns.start / of..columns.end / of)
        };
        let stored = match self.stored {
            Stored::Nvfp4 { codes, scales, factor } => {
                part(scales, BLOCK).and_then(|scales| Ok(Stored::Nvfp4 { codes: part(codes, 2)?, scales, factor }))
            }
            Stored::Mxfp4 { codes, scales } => {
                part(scales, MX_BLOCK).and_then(|scales| Ok(Stored::Mxfp4 { codes: part(codes, 2)?, scales }))
            }
            Stored::Fp8 { values, factor } => part(values, 1).map(|values| Stored::Fp8 { values, factor }),
            Stored::Plain { dtype, values } => part(values, 1).map(|values| Stored::Plain { dtype, values }),
        };
        self.with(stored)
    }

    fn with(&self, stored: Result<Stored<'a>>) -> Result<Self> {
        let stored = stored.map_err(|error| error.context(format!("weight `{}`", self.name)))?;
        Ok(Self { name: self.name.clone(), stored })
    }

    /// The values of a row, in f32: a scale times the tensor's factor (or over its divisor) is rounded once, and once more by
    /// the code. So do ModelOpt and compressed-tensors.
    ///
    /// # Errors
    /// Data, if a scale is NaN; the row and the block are named.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn dequantised(&self, row: usize) -> Result<Vec<f32>> {
        assert!(row < self.rows(), "row {row} of {}", self.rows());
        let (mut first, mut second) = (Vec::new(), Vec::new());
        match self.stored {
            Stored::Nvfp4 { codes, scales, factor } => {
                let scale = |scale: u8| (!e4m3::is_nan(scale)).then(|| factor.times(e4m3::decode(scale)));
                self.of_blocks(row, codes.row(row, &mut first), scales.row(row, &mut second), BLOCK, scale)
            }
            Stored::Mxfp4 { codes, scales } => {
                let scale = |scale: u8| (!e8m0::is_nan(scale)).then(|| e8m0::decode(scale));
                self.of_blocks(row, codes.row(row, &mut first), scales.row(row, &mut second), MX_BLOCK, scale)
            }
            Stored::Fp8 { values, factor } => {
                Ok(values.row(row, &mut first).iter().map(|value| e4m3::decode(*value) * factor).collect())
            }
            Stored::Plain { dtype, values } => Ok(decoded(dtype, values.row(row, &mut first)).collect()),
        }
    }

    fn of_blocks(
        &self,
        row: usize,
        codes: &[u8],
        scales: &[u8],
        block: usize,
        scale: impl Fn(u8) -> Option<f32>,
    ) -> Result<Vec<f32>> {
        let mut values = Vec::with_capacity(2 * codes.len());
        for (at, (codes, found)) in codes.chunks(block / 2).zip(scales).enumerate() {
            let scale = scale(*found).ok_or_else(|| self.nan(row, at))?;
            values.extend(codes.iter().flat_map(|pair| [pair & 15, pair >> 4]).map(|code| e2m1::decode(code) * scale));
        }
        Ok(values)
    }

    /// A scale is NaN.
    fn nan(&self, row: usize, block: usize) -> Error {
        Error::data(format!("weight `{}`: the scale of row {row}, block {block} is NaN", self.name))
    }
}

/// 2 to a power from −149 to 127.
fn power_of_two(power: i32) -> f32 {
    f64::from(power).exp2() as f32
}
