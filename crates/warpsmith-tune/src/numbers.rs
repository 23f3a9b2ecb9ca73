//! Values on a device, in one of the formats that kernels read.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, DeviceRepr, ValidAsZeroBits};
use half::{bf16, f16};
use warpsmith::format::Format;
use warpsmith::internal::Raise;
use warpsmith::run::{Matrix, MatrixMut, Values};
use warpsmith::{Error, Result};

/// Values on a device in their format.
#[derive(Debug)]
#[non_exhaustive]
pub enum Numbers {
    /// binary16.
    F16(CudaSlice<f16>),
    /// bfloat16.
    Bf16(CudaSlice<bf16>),
    /// binary32.
    F32(CudaSlice<f32>),
}

impl Numbers {
    /// `length` of them: `drawn`, rounded to the format, over and over.
    ///
    /// # Errors
    /// Driver, if the device has no room.
    pub fn new(stream: &Arc<CudaStream>, format: Format, drawn: &[f32], length: usize) -> Result<Self> {
        Ok(match format {
            Format::F16 => {
                Self::F16(repeated(stream, &drawn.iter().map(|x| f16::from_f32(*x)).collect::<Vec<_>>(), length)?)
            }
            Format::Bf16 => {
                Self::Bf16(repeated(stream, &drawn.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>(), length)?)
            }
            _ => Self::F32(repeated(stream, drawn, length)?),
        })
    }

    /// `values`, and NaN behind them: so many that nobody should read.
    ///
    /// # Errors
    /// Driver, if the device has no room.
    pub fn guarded(stream: &Arc<CudaStream>, format: Format, values: &[f32], guards: usize) -> Result<Self> {
        let all = [values, &vec![f32::NAN; guards][..]].concat();
        Self::new(stream, format, &all, all.len())
    }

    /// Others in their place.
    ///
    /// # Errors
    /// Data, if `other` are of another format or not as many; driver, if it refuses the copy.
    pub fn set(&mut self, stream: &Arc<CudaStream>, other: &Self) -> Result<()> {
        match (self, other) {
            (Self::F16(to), Self::F16(from)) if to.len() == from.len() => stream.memcpy_dtod(from, to)?,
            (Self::Bf16(to), Self::Bf16(from)) if to.len() == from.len() => stream.memcpy_dtod(from, to)?,
            (Self::F32(to), Self::F32(from)) if to.len() == from.len() => stream.memcpy_dtod(from, to)?,
            _ => return Err(Error::data("numbers of another format, or not as many")),
        }
        Ok(())
    }

    /// Their format.
    #[must_use]
    pub fn format(&self) -> Format {
        match self {
            Self::F16(_) => Format::F16,
            Self::Bf16(_) => Format::Bf16,
            Self::F32(_) => Format::F32,
        }
    }

    /// As the tokens of a product.
    ///
    /// # Errors
    /// Operand, if they are f32.
    pub fn matrix(&self) -> Result<Matrix<'_>> {
        match self {
            Self::F16(values) => Ok(values.into()),
            Self::Bf16(values) => Ok(values.into()),
            Self::F32(_) => Err(Error::operand("tokens are f16 or bf16, not f32")),
        }
    }

    /// As what is read.
    pub fn values(&self) -> Values<'_> {
        match self {
            Self::F16(values) => values.into(),
            Self::Bf16(values) => values.into(),
            Self::F32(values) => values.into(),
        }
    }

    /// As what is written.
    pub fn result(&mut self) -> MatrixMut<'_> {
        match self {
            Self::F16(values) => values.into(),
            Self::Bf16(values) => values.into(),
            Self::F32(values) => values.into(),
        }
    }

    /// What is there once the stream has come so far.
    ///
    /// # Errors
    /// Driver, if it refuses the copy or something in the stream failed.
    pub fn to_host(&self, stream: &Arc<CudaStream>) -> Result<Vec<f32>> {
        Ok(match self {
            Self::F16(values) => stream.clone_dtoh(values)?.into_iter().map(f16::to_f32).collect(),
            Self::Bf16(values) => stream.clone_dtoh(values)?.into_iter().map(bf16::to_f32).collect(),
            Self::F32(values) => stream.clone_dtoh(values)?,
        })
    }
}

fn repeated<T: DeviceRepr + ValidAsZeroBits>(
    stream: &Arc<CudaStream>,
    drawn: &[T],
    length: usize,
) -> Result<CudaSlice<T>> {
    if drawn.len() == length {
        return Ok(stream.clone_htod(drawn)?);
    }
    let (drawn, mut all) = (stream.clone_htod(drawn)?, stream.alloc_zeros::<T>(length)?);
    for first in (0..length).step_by(drawn.len().max(1)) {
        let count = drawn.len().min(length - first);
        stream.memcpy_dtod(&drawn.slice(..count), &mut all.slice_mut(first..first + count))?;
    }
    Ok(all)
}
