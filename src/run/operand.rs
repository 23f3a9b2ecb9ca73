//! A matrix, α or a bias of a launch: device memory with its format.

use std::fmt;

use cudarc::driver::{CudaSlice, CudaView, CudaViewMut};
use half::{bf16, f16};

use super::check::Buffer;
use super::memory::{Memory, MemoryMut};
use super::shared::Shared;
use super::visit::Visitor;
use crate::error::{Error, Result};
use crate::format::Format;
use crate::operand::Operand;

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
    /// e2m1 codes, two a byte (low nibble = even k), with e8m0 block scales: weights only.
    Mxfp4 {
        /// `rows × K/2` bytes.
        codes: Memory<'a, u8>,
        /// `rows × K/32` bytes.
        scales: Memory<'a, u8>,
    },
    /// e4m3fn values, with factors of rows: tokens only.
    E4m3 {
        /// `rows × K` bytes, in the [order](crate::format::E4m3Tensor::position) of kernels.
        values: Memory<'a, u8>,
        /// `rows` of them; for each 128 of K ([`Problem::k_factors`](crate::spec::Problem::k_factors)) `[rows, ⌈K/128⌉]`, row-major.
        factors: Memory<'a, f32>,
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

    /// From codes and e8m0 scales.
    #[inline]
    pub fn mxfp4(codes: impl Into<Memory<'a, u8>>, scales: impl Into<Memory<'a, u8>>) -> Self {
        Matrix::Mxfp4 { codes: codes.into(), scales: scales.into() }
    }

    /// From e4m3 values and factors of rows.
    #[inline]
    pub fn e4m3(values: impl Into<Memory<'a, u8>>, factors: impl Into<Memory<'a, f32>>) -> Self {
        Matrix::E4m3 { values: values.into(), factors: factors.into() }
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

    /// Values and scales.
    #[inline(always)]
    pub(super) fn visit<'b, V: Visitor<'b>>(
        &'b self,
        [values, scales]: [Operand; 2],
        visitor: &mut V,
    ) -> Result<(), V::Refusal> {
        match self {
            Matrix::Nvfp4 { codes, scales: block_scales } => {
                visitor.read(values, Format::Nvfp4, codes)?;
                visitor.read(scales, Format::Nvfp4, block_scales)
            }
            Matrix::Mxfp4 { codes, scales: block_scales } => {
                visitor.read(values, Format::Mxfp4, codes)?;
                visitor.read(scales, Format::Mxfp4, block_scales)
            }
            Matrix::E4m3 { values: given, factors } => {
                visitor.read(values, Format::E4m3, given)?;
                visitor.read(scales, Format::E4m3, factors)
            }
            Matrix::F16(given) => visitor.read(values, Format::F16, given),
            Matrix::Bf16(given) => visitor.read(values, Format::Bf16, given),
        }
    }

    /// Where the values are, or their codes.
    pub(super) fn values(&self) -> Buffer {
        match self {
            Matrix::Nvfp4 { codes, .. } | Matrix::Mxfp4 { codes, .. } => codes.buffer(),
            Matrix::E4m3 { values, .. } => values.buffer(),
            Matrix::F16(values) => values.buffer(),
            Matrix::Bf16(values) => values.buffer(),
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
        let format = match self {
            Matrix::Nvfp4 { .. } => Format::Nvfp4,
            Matrix::Mxfp4 { .. } => Format::Mxfp4,
            Matrix::E4m3 { .. } => Format::E4m3,
            Matrix::F16(_) => Format::F16,
            Matrix::Bf16(_) => Format::Bf16,
        };
        write!(f, "{format} of {} elements", self.values().elements)
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
    /// e2m1 codes, two a byte (low nibble = even column), with e4m3fn block scales, one for 16 columns, in the problem's
    /// layout: values are code · scale · [`Operands::c_factor`](crate::run::Operands::c_factor).
    Nvfp4 {
        /// `m × N/2` bytes.
        codes: MemoryMut<'a, u8>,
        /// Linear: `m × N/16` bytes. 128x4: `⌈m/128⌉·128 × N/16` bytes, of which those of padding rows are left as they are.
        scales: MemoryMut<'a, u8>,
    },
}

impl<'a> MatrixMut<'a> {
    /// From memory for codes and scales.
    #[inline]
    pub fn nvfp4(codes: impl Into<MemoryMut<'a, u8>>, scales: impl Into<MemoryMut<'a, u8>>) -> Self {
        MatrixMut::Nvfp4 { codes: codes.into(), scales: scales.into() }
    }

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
                Format::Nvfp4 | Format::Mxfp4 | Format::E4m3 => None,
            }
        };
        matrix.ok_or_else(|| Error::operand(format!("{format} is no result format: expected f16, bf16 or f32")))
    }

    pub(super) fn format(&self) -> Format {
        match self {
            MatrixMut::F16(_) => Format::F16,
            MatrixMut::Bf16(_) => Format::Bf16,
            MatrixMut::F32(_) => Format::F32,
            MatrixMut::Nvfp4 { .. } => Format::Nvfp4,
        }
    }

    /// Values, or bytes of codes.
    pub(super) fn elements(&self) -> u64 {
        match self {
            MatrixMut::F16(values) => values.buffer().elements,
            MatrixMut::Bf16(values) => values.buffer().elements,
            MatrixMut::F32(values) => values.buffer().elements,
            MatrixMut::Nvfp4 { codes, .. } => codes.buffer().elements,
        }
    }

    #[inline(always)]
    pub(super) fn visit<'b, V: Visitor<'b>>(&'b mut self, visitor: &mut V) -> Result<(), V::Refusal> {
        match self {
            MatrixMut::F16(values) => visitor.write(Operand::C, Format::F16, values),
            MatrixMut::Bf16(values) => visitor.write(Operand::C, Format::Bf16, values),
            MatrixMut::F32(values) => visitor.write(Operand::C, Format::F32, values),
            MatrixMut::Nvfp4 { codes, scales } => {
                visitor.write(Operand::C, Format::Nvfp4, codes)?;
                visitor.write(Operand::CScales, Format::Nvfp4, scales)
            }
        }
    }
}

impl<'a, C: Into<MemoryMut<'a, u8>>, S: Into<MemoryMut<'a, u8>>> From<(C, S)> for MatrixMut<'a> {
    #[inline]
    fn from((codes, scales): (C, S)) -> Self {
        MatrixMut::nvfp4(codes, scales)
    }
}

/// Conversions of what is read in one format.
macro_rules! converts {
    ($to:ident: $($value:ty => $format:ident),*) => {$(
        impl<'a> From<Memory<'a, $value>> for $to<'a> {
            #[inline]
            fn from(values: Memory<'a, $value>) -> Self {
                $to::$format(values)
            }
        }

        impl<'a> From<&'a CudaSlice<$value>> for $to<'a> {
            #[inline]
            fn from(values: &'a CudaSlice<$value>) -> Self {
                $to::$format(values.into())
            }
        }

        impl<'a> From<CudaView<'a, $value>> for $to<'a> {
            #[inline]
            fn from(values: CudaView<'a, $value>) -> Self {
                $to::$format(values.into())
            }
        }

        impl<'a> From<&'a Shared<$value>> for $to<'a> {
            #[inline]
            fn from(values: &'a Shared<$value>) -> Self {
                $to::$format(values.into())
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

converts!(Matrix: f16 => F16, bf16 => Bf16);
converts!(Values: f16 => F16, bf16 => Bf16, f32 => F32);
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
    /// The number, where it is one, and else memory.
    #[inline]
    pub(super) fn parts(self) -> (f32, Option<Memory<'a, f32>>) {
        match self {
            Alpha::Value(value) => (value, None),
            Alpha::Device(values) => (1.0, Some(values)),
        }
    }
}

/// Values that are read in one of three formats: a bias, what kernels without matrix instructions take. Memory of these
/// formats converts into it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Values<'a> {
    /// binary16.
    F16(Memory<'a, f16>),
    /// bfloat16.
    Bf16(Memory<'a, bf16>),
    /// binary32.
    F32(Memory<'a, f32>),
}

impl Values<'_> {
    pub(super) fn format(&self) -> Format {
        match self {
            Values::F16(_) => Format::F16,
            Values::Bf16(_) => Format::Bf16,
            Values::F32(_) => Format::F32,
        }
    }

    #[inline(always)]
    pub(super) fn visit<'b, V: Visitor<'b>>(&'b self, operand: Operand, visitor: &mut V) -> Result<(), V::Refusal> {
        match self {
            Values::F16(values) => visitor.read(operand, Format::F16, values),
            Values::Bf16(values) => visitor.read(operand, Format::Bf16, values),
            Values::F32(values) => visitor.read(operand, Format::F32, values),
        }
    }

    pub(super) fn elements(&self) -> u64 {
        match self {
            Values::F16(values) => values.elements(),
            Values::Bf16(values) => values.elements(),
            Values::F32(values) => values.elements(),
        }
    }
}
