//! Weights as a holder takes them: borrowed, shared, or given away.

use cudarc::driver::{CudaSlice, CudaStream, CudaView};
use half::{bf16, f16};

use super::check::{self, ContextId};
use super::memory::Memory;
use super::operand::Matrix;
use super::shared::{OwnedMemory, Shared};
use crate::error::{Error, Result};
use crate::spec::Problem;

/// Device memory of weights: what a [`Memory`] is made from is borrowed, what is given away is kept.
#[derive(Debug)]
#[non_exhaustive]
pub enum GivenMemory<'a, T> {
    /// Borrowed.
    Borrowed(Memory<'a, T>),
    /// Given away, or shared with others.
    Shared(Shared<T>),
    /// Given away; written when the stream that it is used in first has come to that point.
    Owned(OwnedMemory<T>),
}

/// B `[N, K]` (`[G, N, K]` when grouped), row-major, as [`Engine::weights`](crate::engine::Engine::weights) takes it.
/// Slices, views and shared memory of f16 and bf16 values convert into it, pairs of codes and scales, and any [`Matrix`].
#[derive(Debug)]
#[non_exhaustive]
pub enum GivenMatrix<'a> {
    /// As [`Matrix::Nvfp4`].
    Nvfp4 {
        /// `rows × K/2` bytes.
        codes: GivenMemory<'a, u8>,
        /// As many bytes as in [`Matrix::Nvfp4`].
        scales: GivenMemory<'a, u8>,
    },
    /// As [`Matrix::Mxfp4`].
    Mxfp4 {
        /// `rows × K/2` bytes.
        codes: GivenMemory<'a, u8>,
        /// `rows × K/32` bytes.
        scales: GivenMemory<'a, u8>,
    },
    /// `rows × K` binary16 values.
    F16(GivenMemory<'a, f16>),
    /// `rows × K` bfloat16 values.
    Bf16(GivenMemory<'a, bf16>),
    /// What a [`Matrix`] of e4m3 values becomes. No weights are: they are refused.
    E4m3 {
        /// Values.
        values: GivenMemory<'a, u8>,
        /// Factors of rows.
        factors: GivenMemory<'a, f32>,
    },
}

impl<'a, T> GivenMemory<'a, T> {
    /// For one launch.
    #[inline]
    pub(super) fn memory(&self) -> Memory<'_, T> {
        match self {
            Self::Borrowed(memory) => memory.again(),
            Self::Shared(shared) => shared.into(),
            Self::Owned(owned) => owned.memory(),
        }
    }

    /// To be read by any number of streams.
    fn kept(self, stream: &CudaStream) -> Result<Self> {
        match self {
            Self::Owned(owned) => Shared::written_in(stream, owned).map(Self::Shared),
            kept => Ok(kept),
        }
    }
}

impl<'a> GivenMatrix<'a> {
    /// From codes and e8m0 scales; a pair of codes and scales that converts into a matrix is NVFP4.
    #[inline]
    pub fn mxfp4(codes: impl Into<GivenMemory<'a, u8>>, scales: impl Into<GivenMemory<'a, u8>>) -> Self {
        Self::Mxfp4 { codes: codes.into(), scales: scales.into() }
    }

    /// For one launch.
    #[inline]
    pub(super) fn matrix(&self) -> Matrix<'_> {
        match self {
            Self::Nvfp4 { codes, scales } => Matrix::Nvfp4 { codes: codes.memory(), scales: scales.memory() },
            Self::Mxfp4 { codes, scales } => Matrix::Mxfp4 { codes: codes.memory(), scales: scales.memory() },
            Self::E4m3 { values, factors } => Matrix::E4m3 { values: values.memory(), factors: factors.memory() },
            Self::F16(values) => Matrix::F16(values.memory()),
            Self::Bf16(values) => Matrix::Bf16(values.memory()),
        }
    }

    /// To be read by any number of streams.
    fn kept(self, stream: &CudaStream) -> Result<Self> {
        Ok(match self {
            Self::Nvfp4 { codes, scales } => Self::Nvfp4 { codes: codes.kept(stream)?, scales: scales.kept(stream)? },
            Self::Mxfp4 { codes, scales } => Self::Mxfp4 { codes: codes.kept(stream)?, scales: scales.kept(stream)? },
            Self::E4m3 { values, factors } => {
                Self::E4m3 { values: values.kept(stream)?, factors: factors.kept(stream)? }
            }
            Self::F16(values) => Self::F16(values.kept(stream)?),
            Self::Bf16(values) => Self::Bf16(values.kept(stream)?),
        })
    }
}

/// B, or B1 and B2, as they are given.
#[derive(Debug)]
pub struct Given<'a> {
    first: GivenMatrix<'a>,
    second: Option<GivenMatrix<'a>>,
}

impl<'a> Given<'a> {
    /// B `[groups, n, k]` of `problem`, or B1 (the gate) and B2. What is given away is kept.
    ///
    /// # Errors
    /// Operand, if a number, format, size or context does not fit; driver, if it makes no event.
    pub fn new(
        stream: &CudaStream,
        problem: &Problem,
        b: impl IntoIterator<Item = impl Into<GivenMatrix<'a>>>,
    ) -> Result<Self> {
        let b = b.into_iter().map(|b| b.into().kept(stream)).collect::<Result<Vec<_>>>()?;
        let matrices: Vec<_> = b.iter().map(GivenMatrix::matrix).collect();
        check::each_b(ContextId::of(stream), problem, &matrices)?;
        drop(matrices);
        let mut b = b.into_iter();
        let first = b.next().ok_or_else(|| Error::internal("no weights after they were checked"))?;
        Ok(Self { first, second: b.next() })
    }

    /// For one launch.
    #[inline]
    pub(super) fn matrices(&self) -> (Matrix<'_>, Option<Matrix<'_>>) {
        (self.first.matrix(), self.second.as_ref().map(GivenMatrix::matrix))
    }
}

impl<'a, T> From<Memory<'a, T>> for GivenMemory<'a, T> {
    fn from(memory: Memory<'a, T>) -> Self {
        Self::Borrowed(memory)
    }
}

impl<'a, T> From<&'a CudaSlice<T>> for GivenMemory<'a, T> {
    fn from(slice: &'a CudaSlice<T>) -> Self {
        Self::Borrowed(slice.into())
    }
}

impl<'a, T> From<CudaView<'a, T>> for GivenMemory<'a, T> {
    fn from(view: CudaView<'a, T>) -> Self {
        Self::Borrowed(view.into())
    }
}

impl<T> From<CudaSlice<T>> for GivenMemory<'_, T> {
    fn from(slice: CudaSlice<T>) -> Self {
        Self::Shared(slice.into())
    }
}

impl<T> From<OwnedMemory<T>> for GivenMemory<'_, T> {
    fn from(memory: OwnedMemory<T>) -> Self {
        Self::Owned(memory)
    }
}

impl<T> From<Shared<T>> for GivenMemory<'_, T> {
    fn from(shared: Shared<T>) -> Self {
        Self::Shared(shared)
    }
}

impl<T> From<&Shared<T>> for GivenMemory<'_, T> {
    fn from(shared: &Shared<T>) -> Self {
        Self::Shared(shared.clone())
    }
}

impl<'a> From<Matrix<'a>> for GivenMatrix<'a> {
    fn from(matrix: Matrix<'a>) -> Self {
        match matrix {
            Matrix::Nvfp4 { codes, scales } => Self::Nvfp4 { codes: codes.into(), scales: scales.into() },
            Matrix::Mxfp4 { codes, scales } => Self::mxfp4(codes, scales),
            Matrix::E4m3 { values, factors } => Self::E4m3 { values: values.into(), factors: factors.into() },
            Matrix::F16(values) => Self::F16(values.into()),
            Matrix::Bf16(values) => Self::Bf16(values.into()),
        }
    }
}

impl<'a, C: Into<GivenMemory<'a, u8>>, S: Into<GivenMemory<'a, u8>>> From<(C, S)> for GivenMatrix<'a> {
    fn from((codes, scales): (C, S)) -> Self {
        Self::Nvfp4 { codes: codes.into(), scales: scales.into() }
    }
}

/// Conversions into a matrix of one format.
macro_rules! converts {
    ($($value:ty => $format:ident: $($from:ty),*;)*) => {$($(
        impl<'a> From<$from> for GivenMatrix<'a> {
            fn from(values: $from) -> Self {
                Self::$format(values.into())
            }
        }
    )*)*};
}

converts! {
    f16 => F16: GivenMemory<'a, f16>, Memory<'a, f16>, &'a CudaSlice<f16>, CudaView<'a, f16>, CudaSlice<f16>, OwnedMemory<f16>, Shared<f16>, &'a Shared<f16>;
    bf16 => Bf16: GivenMemory<'a, bf16>, Memory<'a, bf16>, &'a CudaSlice<bf16>, CudaView<'a, bf16>, CudaSlice<bf16>, OwnedMemory<bf16>, Shared<bf16>, &'a Shared<bf16>;
}
