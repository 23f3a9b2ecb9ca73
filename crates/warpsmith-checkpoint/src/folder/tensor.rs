//! One tensor.

use half::{bf16, f16};
use safetensors::Dtype;
use warpsmith::internal::Raise;
use warpsmith::{Error, Result};

/// A tensor as it lies in its file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tensor<'a> {
    pub(crate) name: &'a str,
    pub(crate) dtype: Dtype,
    pub(crate) shape: &'a [usize],
    pub(crate) bytes: &'a [u8],
}

impl<'a> Tensor<'a> {
    /// Refuses another type.
    pub(crate) fn is(self, expected: &[Dtype]) -> Result<Self> {
        if expected.contains(&self.dtype) {
            return Ok(self);
        }
        let expected: Vec<_> = expected.iter().map(ToString::to_string).collect();
        Err(self.wrong(format!("is {}, expected {}", self.dtype, expected.join(" or "))))
    }

    /// Refuses another shape.
    pub(crate) fn has_shape(self, expected: &[usize]) -> Result<Self> {
        if self.shape == expected {
            return Ok(self);
        }
        Err(self.wrong(format!("has shape {:?}, expected {expected:?}", self.shape)))
    }

    /// Refuses a shape with a zero in it: no bytes bound its other extents.
    pub(crate) fn has_elements(self) -> Result<Self> {
        if !self.shape.contains(&0) {
            return Ok(self);
        }
        Err(self.wrong(format!("has shape {:?}, expected extents of at least 1", self.shape)))
    }

    /// What is wrong with it.
    pub(crate) fn wrong(&self, what: impl std::fmt::Display) -> Error {
        Error::data(format!("tensor `{}` {what}", self.name))
    }

    /// Its values: of F32, F16 or BF16.
    pub(crate) fn values(self) -> Result<Vec<f32>> {
        self.is(&[Dtype::F32, Dtype::F16, Dtype::BF16]).map(|_| decoded(self.dtype, self.bytes).collect())
    }

    /// The only value: of an F32 tensor with one element.
    pub(crate) fn one(self) -> Result<f32> {
        self.is(&[Dtype::F32])?;
        match self.bytes.as_chunks::<4>().0 {
            [bytes] => Ok(f32::from_le_bytes(*bytes)),
            all => Err(self.wrong(format!("has {} elements, expected 1", all.len()))),
        }
    }
}

/// Values of 32 or 16 bits.
pub(crate) fn decoded(dtype: Dtype, bytes: &[u8]) -> Box<dyn Iterator<Item = f32> + '_> {
    let pairs = bytes.as_chunks::<2>().0.iter().copied();
    match dtype {
        Dtype::F16 => Box::new(pairs.map(|pair| f16::from_le_bytes(pair).to_f32())),
        Dtype::BF16 => Box::new(pairs.map(|pair| bf16::from_le_bytes(pair).to_f32())),
        _ => Box::new(bytes.as_chunks::<4>().0.iter().copied().map(f32::from_le_bytes)),
    }
}
