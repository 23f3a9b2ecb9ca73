//! A matrix, or α, of a launch: device memory with its format.

use std::fmt;

use cudarc::driver::{CudaSlice, CudaStream, CudaView, CudaViewMut};
use half::{bf16, f16};

use super::check::{Buffer, MatrixSize};
use super::guards::Guards;
use super::memory::{Memory, MemoryMut};
use super::retired::Owner;
use super::shared::Shared;
use crate::error::{Error, Result};
use crate::format::Format;

/// An operand that is read: A `[m, K]` or B `[N, K]` (`[G, N, K]` when grouped), row-major. Slices and views of f16 and
/// bf16 values convert into it, and pairs of codes and scales.
#[non_exhaustive]
pub enum Matrix<'a> {
    /// e2m1 codes, two a byte (low nibble = even k), with e4m3fn block scales in the problem's layout.
    Nvfp4 {
        /// `rows × K/2` bytes.
        codes: Memory<'a, u8>,
        /// Linear: `rows × K/16` bytes. 128x4: `⌈rows/128⌉·128 × K/16` bytes; for A of all groups' rows as one tensor,
        /// for a grouped B of each group apart.
        scales: Memory<'a, u8>,
    },
    /// `rows × K` binary16 values.
    F16(Memory<'a, f16>),
    /// `rows × K` bfloat16 values.
    Bf16(Memory<'a, bf16>),
}

impl<'a> Matrix<'a> {
    /// From codes and scales.
    #[inline]
    pub fn nvfp4(codes: impl Into<Memory<'a, u8>>, scales: impl Into<Memory<'a, u8>>) -> Self {
        Matrix::Nvfp4 { codes: codes.into(), scales: scales.into() }
    }

    /// From binary16 values.
    #[inline]
    pub fn f16(values: impl Into<Memory<'a, f16>>) -> Self {
        Matrix::F16(values.into())
    }

    /// From bfloat16 values.
    #[inline]
    pub fn bf16(values: impl Into<Memory<'a, bf16>>) -> Self {
        Matrix::Bf16(values.into())
    }

    #[inline(always)]
    pub(super) fn size(&self) -> MatrixSize {
        match self {
            Matrix::Nvfp4 { codes, scales } => {
                MatrixSize { format: Format::Nvfp4, values: codes.buffer(), scales: Some(scales.buffer()) }
            }
            Matrix::F16(values) => MatrixSize { format: Format::F16, values: values.buffer(), scales: None },
            Matrix::Bf16(values) => MatrixSize { format: Format::Bf16, values: values.buffer(), scales: None },
        }
    }

    /// Values (bytes of codes, if they are NVFP4).
    #[inline]
    pub(super) fn elements(&self) -> u64 {
        match self {
            Matrix::Nvfp4 { codes, .. } => codes.elements(),
            Matrix::F16(values) => values.elements(),
            Matrix::Bf16(values) => values.elements(),
        }
    }

    /// Addresses of values and scales (0 for none).
    #[inline(always)]
    pub(super) fn addresses<'b>(&'b self, stream: &'b CudaStream, guards: &mut impl Guards<'b>) -> (u64, u64) {
        match self {
            Matrix::Nvfp4 { codes, scales } => (codes.address(stream, guards), scales.address(stream, guards)),
            Matrix::F16(values) => (values.address(stream, guards), 0),
            Matrix::Bf16(values) => (values.address(stream, guards), 0),
        }
    }

    /// What has to be held until a launch has run.
    #[inline]
    pub(super) fn held(&self) -> [Option<&'a Owner>; 2] {
        match self {
            Matrix::Nvfp4 { codes, scales } => [codes.held(), scales.held()],
            Matrix::F16(values) => [values.held(), None],
            Matrix::Bf16(values) => [values.held(), None],
        }
    }

    #[inline(always)]
    pub(super) fn order(&self, stream: &CudaStream, is_captured: bool) -> Result<()> {
        match self {
            Matrix::Nvfp4 { codes, scales } => {
                codes.order(stream, is_captured)?;
                scales.order(stream, is_captured)
            }
            Matrix::F16(values) => values.order(stream, is_captured),
            Matrix::Bf16(values) => values.order(stream, is_captured),
        }
    }

    pub(super) fn held_by_graph(&self) -> [Option<Owner>; 2] {
        match self {
            Matrix::Nvfp4 { codes, scales } => [codes.held_by_graph(), scales.held_by_graph()],
            Matrix::F16(values) => [values.held_by_graph(), None],
            Matrix::Bf16(values) => [values.held_by_graph(), None],
        }
    }
}

impl<'a, C: Into<Memory<'a, u8>>, S: Into<Memory<'a, u8>>> From<(C, S)> for Matrix<'a> {
    #[inline]
    fn from((codes, scales): (C, S)) -> Self {
        Matrix::nvfp4(codes, scales)
    }
}

impl fmt::Debug for Matrix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.size();
        write!(f, "{} of {} elements", size.format, size.values.elements)
    }
}

/// The operand that is written: C `[m, N]`, row-major. Slices and views of its values convert into it.
#[derive(Debug)]
#[non_exhaustive]
pub enum MatrixMut<'a> {
    /// `m × N` binary16 values.
    F16(MemoryMut<'a, f16>),
    /// `m × N` bfloat16 values.
    Bf16(MemoryMut<'a, bf16>),
    /// `m × N` binary32 values.
    F32(MemoryMut<'a, f32>),
}

impl<'a> MatrixMut<'a> {
    /// From binary16 values.
    #[inline]
    pub fn f16(values: impl Into<MemoryMut<'a, f16>>) -> Self {
        MatrixMut::F16(values.into())
    }

    /// From bfloat16 values.
    #[inline]
    pub fn bf16(values: impl Into<MemoryMut<'a, bf16>>) -> Self {
        MatrixMut::Bf16(values.into())
    }

    /// From binary32 values.
    #[inline]
    pub fn f32(values: impl Into<MemoryMut<'a, f32>>) -> Self {
        MatrixMut::F32(values.into())
    }

    /// Untyped memory taken as values of a format; bytes beyond the last whole value are left out.
    ///
    /// # Errors
    /// Operand, if `format` is not f16, bf16 or f32.
    pub fn from_bytes(format: Format, bytes: &'a mut CudaViewMut<'_, u8>) -> Result<Self> {
        let length = bytes.len();
        // SAFETY: every bit pattern is a value of each of these types, the length in bytes is not exceeded, and the
        // alignment of the address is checked at launch.
        let matrix = unsafe {
            match format {
                Format::F16 => bytes.transmute_mut(length / 2).map(MatrixMut::f16),
                Format::Bf16 => bytes.transmute_mut(length / 2).map(MatrixMut::bf16),
                Format::F32 => bytes.transmute_mut(length / 4).map(MatrixMut::f32),
                Format::Nvfp4 => None,
            }
        };
        matrix.ok_or_else(|| Error::operand(format!("{format} is no result format: expected f16, bf16 or f32")))
    }

    #[inline(always)]
    pub(super) fn size(&self) -> MatrixSize {
        let (format, values) = match self {
            MatrixMut::F16(values) => (Format::F16, values.buffer()),
            MatrixMut::Bf16(values) => (Format::Bf16, values.buffer()),
            MatrixMut::F32(values) => (Format::F32, values.buffer()),
        };
        MatrixSize { format, values, scales: None }
    }

    #[inline]
    pub(super) fn address<'b>(&'b mut self, stream: &'b CudaStream, guards: &mut impl Guards<'b>) -> u64 {
        match self {
            MatrixMut::F16(values) => values.address(stream, guards),
            MatrixMut::Bf16(values) => values.address(stream, guards),
            MatrixMut::F32(values) => values.address(stream, guards),
        }
    }

    #[inline]
    pub(super) fn held(&self) -> Option<&'a Owner> {
        match self {
            MatrixMut::F16(values) => values.held(),
            MatrixMut::Bf16(values) => values.held(),
            MatrixMut::F32(values) => values.held(),
        }
    }
}

/// Conversions into a matrix of one format.
macro_rules! converts {
    ($($value:ty => $format:ident),*) => {$(
        impl<'a> From<Memory<'a, $value>> for Matrix<'a> {
            #[inline]
            fn from(values: Memory<'a, $value>) -> Self {
                Matrix::$format(values)
            }
        }

        impl<'a> From<&'a CudaSlice<$value>> for Matrix<'a> {
            #[inline]
            fn from(values: &'a CudaSlice<$value>) -> Self {
                Matrix::$format(values.into())
            }
        }

        impl<'a> From<CudaView<'a, $value>> for Matrix<'a> {
            #[inline]
            fn from(values: CudaView<'a, $value>) -> Self {
                Matrix::$format(values.into())
            }
        }

        impl<'a> From<&'a Shared<$value>> for Matrix<'a> {
            #[inline]
            fn from(values: &'a Shared<$value>) -> Self {
                Matrix::$format(values.into())
            }
        }
    )*};
}

/// Conversions into a result of one format.
macro_rules! converts_mut {
    ($($value:ty => $format:ident),*) => {$(
        impl<'a> From<MemoryMut<'a, $value>> for MatrixMut<'a> {
            #[inline]
            fn from(values: MemoryMut<'a, $value>) -> Self {
                MatrixMut::$format(values)
            }
        }

        impl<'a> From<&'a mut CudaSlice<$value>> for MatrixMut<'a> {
            #[inline]
            fn from(values: &'a mut CudaSlice<$value>) -> Self {
                MatrixMut::$format(values.into())
            }
        }

        impl<'a> From<CudaViewMut<'a, $value>> for MatrixMut<'a> {
            #[inline]
            fn from(values: CudaViewMut<'a, $value>) -> Self {
                MatrixMut::$format(values.into())
            }
        }
    )*};
}

converts!(f16 => F16, bf16 => Bf16);
converts_mut!(f16 => F16, bf16 => Bf16, f32 => F32);

/// The factor of one product; applied in f32, before the activation and before the cast. Numbers convert into it, and
/// memory of them.
#[derive(Debug)]
#[non_exhaustive]
pub enum Alpha<'a> {
    /// One number for all groups.
    Value(f32),
    /// Read on the device when the kernel runs: one number, or one a group.
    Device(Memory<'a, f32>),
}

impl Default for Alpha<'_> {
    #[inline]
    fn default() -> Self {
        Alpha::Value(1.0)
    }
}

impl From<f32> for Alpha<'_> {
    #[inline]
    fn from(value: f32) -> Self {
        Alpha::Value(value)
    }
}

impl<'a, M: Into<Memory<'a, f32>>> From<M> for Alpha<'a> {
    #[inline]
    fn from(values: M) -> Self {
        Alpha::Device(values.into())
    }
}

impl<'a> Alpha<'a> {
    #[inline]
    pub(super) fn size(&self) -> Option<Buffer> {
        match self {
            Alpha::Value(_) => None,
            Alpha::Device(values) => Some(values.buffer()),
        }
    }

    #[inline]
    pub(super) fn address<'b>(&'b self, stream: &'b CudaStream, guards: &mut impl Guards<'b>) -> u64 {
        match self {
            Alpha::Value(_) => 0,
            Alpha::Device(values) => values.address(stream, guards),
        }
    }

    /// The number, where it is one.
    #[inline]
    pub(super) fn value(&self) -> f32 {
        if let Alpha::Value(value) = self { *value } else { 1.0 }
    }

    /// From group to group, in numbers.
    #[inline]
    pub(super) fn step(&self) -> i32 {
        i32::from(matches!(self, Alpha::Device(values) if values.buffer().elements > 1))
    }

    #[inline]
    pub(super) fn held(&self) -> Option<&'a Owner> {
        if let Alpha::Device(values) = self { values.held() } else { None }
    }

    pub(super) fn held_by_graph(&self) -> Option<Owner> {
        if let Alpha::Device(values) = self { values.held_by_graph() } else { None }
    }
}
