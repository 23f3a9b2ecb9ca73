//! What a launch works on: borrowed device memory with its format.

use std::fmt;

use cudarc::driver::{CudaSlice, CudaStream, CudaView, CudaViewMut, DeviceSlice};
use half::{bf16, f16};

use super::PreparedWeights;
use super::check::{Buffer, Described, MatrixSize, PreparedSize, WeightSizes};
use super::guards::{Guards, Tracked};
use super::params::Params;
use crate::error::{Error, Result};
use crate::format::Format;

/// An operand that is read: A `[m, K]` or B `[N, K]` (`[G, N, K]` when grouped), row-major.
#[non_exhaustive]
pub enum Matrix<'a> {
    /// e2m1 codes, two a byte (low nibble = even k), with e4m3fn block scales in the problem's layout.
    Nvfp4 {
        /// `rows × K/2` bytes.
        codes: CudaView<'a, u8>,
        /// Linear: `rows × K/16` bytes. 128x4: `⌈rows/128⌉·128 × K/16` bytes; for A of all groups' rows as one tensor,
        /// for a grouped B of each group apart.
        scales: CudaView<'a, u8>,
    },
    /// `rows × K` binary16 values.
    F16(CudaView<'a, f16>),
    /// `rows × K` bfloat16 values.
    Bf16(CudaView<'a, bf16>),
}

impl<'a> Matrix<'a> {
    /// From whole slices of codes and scales. (Views of parts go into [`Matrix::Nvfp4`] directly.)
    #[must_use]
    #[inline]
    pub fn nvfp4(codes: &'a CudaSlice<u8>, scales: &'a CudaSlice<u8>) -> Self {
        Matrix::Nvfp4 { codes: codes.as_view(), scales: scales.as_view() }
    }

    /// From a whole slice of binary16 values.
    #[must_use]
    #[inline]
    pub fn f16(values: &'a CudaSlice<f16>) -> Self {
        Matrix::F16(values.as_view())
    }

    /// From a whole slice of bfloat16 values.
    #[must_use]
    #[inline]
    pub fn bf16(values: &'a CudaSlice<bf16>) -> Self {
        Matrix::Bf16(values.as_view())
    }

    #[inline]
    pub(super) fn size(&self) -> MatrixSize {
        match self {
            Matrix::Nvfp4 { codes, scales } => {
                MatrixSize { format: Format::Nvfp4, values: buffer(codes), scales: Some(buffer(scales)) }
            }
            Matrix::F16(values) => MatrixSize { format: Format::F16, values: buffer(values), scales: None },
            Matrix::Bf16(values) => MatrixSize { format: Format::Bf16, values: buffer(values), scales: None },
        }
    }

    /// Addresses of values and scales (0 for none).
    #[inline]
    pub(super) fn addresses<'b>(&'b self, stream: &'b CudaStream, guards: &mut impl Guards<'b>) -> (u64, u64) {
        match self {
            Matrix::Nvfp4 { codes, scales } => (guards.read(codes, stream), guards.read(scales, stream)),
            Matrix::F16(values) => (guards.read(values, stream), 0),
            Matrix::Bf16(values) => (guards.read(values, stream), 0),
        }
    }
}

impl fmt::Debug for Matrix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.size();
        write!(f, "{} of {} elements", size.format, size.values.elements)
    }
}

/// The operand that is written: C `[m, N]`, row-major.
#[derive(Debug)]
#[non_exhaustive]
pub enum MatrixMut<'a> {
    /// `m × N` binary16 values.
    F16(CudaViewMut<'a, f16>),
    /// `m × N` bfloat16 values.
    Bf16(CudaViewMut<'a, bf16>),
    /// `m × N` binary32 values.
    F32(CudaViewMut<'a, f32>),
}

impl<'a> MatrixMut<'a> {
    /// From a whole slice of binary16 values.
    #[must_use]
    #[inline]
    pub fn f16(values: &'a mut CudaSlice<f16>) -> Self {
        MatrixMut::F16(values.as_view_mut())
    }

    /// From a whole slice of bfloat16 values.
    #[must_use]
    #[inline]
    pub fn bf16(values: &'a mut CudaSlice<bf16>) -> Self {
        MatrixMut::Bf16(values.as_view_mut())
    }

    /// From a whole slice of binary32 values.
    #[must_use]
    #[inline]
    pub fn f32(values: &'a mut CudaSlice<f32>) -> Self {
        MatrixMut::F32(values.as_view_mut())
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
                Format::F16 => bytes.transmute_mut(length / 2).map(MatrixMut::F16),
                Format::Bf16 => bytes.transmute_mut(length / 2).map(MatrixMut::Bf16),
                Format::F32 => bytes.transmute_mut(length / 4).map(MatrixMut::F32),
                Format::Nvfp4 => None,
            }
        };
        matrix.ok_or_else(|| Error::operand(format!("{format} is no result format: expected f16, bf16 or f32")))
    }

    #[inline]
    fn size(&self) -> MatrixSize {
        let (format, values) = match self {
            MatrixMut::F16(values) => (Format::F16, buffer(values)),
            MatrixMut::Bf16(values) => (Format::Bf16, buffer(values)),
            MatrixMut::F32(values) => (Format::F32, buffer(values)),
        };
        MatrixSize { format, values, scales: None }
    }

    #[inline]
    fn address<'b>(&'b mut self, stream: &'b CudaStream, guards: &mut impl Guards<'b>) -> u64 {
        match self {
            MatrixMut::F16(values) => guards.write(values, stream),
            MatrixMut::Bf16(values) => guards.write(values, stream),
            MatrixMut::F32(values) => guards.write(values, stream),
        }
    }
}

/// The factor of one product; applied in f32, before the activation and before the cast.
#[derive(Debug)]
#[non_exhaustive]
pub enum Alpha<'a> {
    /// One number for all groups.
    Value(f32),
    /// Read on the device when the kernel runs: one number, or one a group.
    Device(CudaView<'a, f32>),
}

impl Default for Alpha<'_> {
    fn default() -> Self {
        Alpha::Value(1.0)
    }
}

impl From<f32> for Alpha<'_> {
    fn from(value: f32) -> Self {
        Alpha::Value(value)
    }
}

impl<'a> From<&'a CudaSlice<f32>> for Alpha<'a> {
    fn from(values: &'a CudaSlice<f32>) -> Self {
        Alpha::Device(values.as_view())
    }
}

impl Alpha<'_> {
    #[inline]
    fn size(&self) -> Option<Buffer> {
        match self {
            Alpha::Value(_) => None,
            Alpha::Device(values) => Some(buffer(values)),
        }
    }

    #[inline]
    fn address<'b>(&'b self, stream: &'b CudaStream, guards: &mut impl Guards<'b>) -> u64 {
        match self {
            Alpha::Value(_) => 0,
            Alpha::Device(values) => guards.read(values, stream),
        }
    }
}

/// The operands of one launch, all on the kernel's device.
///
/// Base addresses of A, B, C and workspace are multiples of 16 bytes, of scales, α and offsets of 4; what cudarc
/// allocates is, and so is every view that begins at a row.
///
/// When grouped, the rows of group g are `offsets[g]..offsets[g + 1]` of A and C; a group may have none. The offsets are
/// read on the device when the kernel runs, so a captured graph can be replayed with other sizes up to `m`. Kernels
/// clamp them to `0..=m` and take a group that runs backwards as empty: no offset makes them touch memory outside of
/// A and C. Rows of C that belong to no group are left as they are.
#[derive(Debug)]
#[must_use]
pub struct Operands<'a> {
    m: u32,
    a: Matrix<'a>,
    b: Weights<'a>,
    alpha: [Alpha<'a>; 2],
    offsets: Option<CudaView<'a, i32>>,
    c: MatrixMut<'a>,
    workspace: Option<CudaViewMut<'a, u8>>,
}

/// B, or B1 and B2.
#[derive(Debug)]
enum Weights<'a> {
    One(Matrix<'a>),
    Two(Matrix<'a>, Matrix<'a>),
    Prepared(&'a PreparedWeights),
}

impl Weights<'_> {
    #[inline]
    fn sizes(&self) -> WeightSizes<'_> {
        match self {
            Weights::One(b) => WeightSizes::Given([Some(b.size()), None]),
            Weights::Two(b1, b2) => WeightSizes::Given([Some(b1.size()), Some(b2.size())]),
            Weights::Prepared(weights) => {
                WeightSizes::Prepared(PreparedSize { layout: weights.layout(), bytes: buffer(&weights.as_view()) })
            }
        }
    }

    /// Addresses of values and scales (0 for none) of each.
    #[inline]
    fn addresses<'b>(&'b self, stream: &'b CudaStream, guards: &mut impl Guards<'b>) -> [(u64, u64); 2] {
        match self {
            Weights::One(b) => [b.addresses(stream, guards), (0, 0)],
            Weights::Two(b1, b2) => [b1.addresses(stream, guards), b2.addresses(stream, guards)],
            Weights::Prepared(weights) => [(guards.read(weights.slice(), stream), 0), (0, 0)],
        }
    }
}

impl<'a> Operands<'a> {
    #[inline]
    fn new(m: u32, a: Matrix<'a>, b: Weights<'a>, c: MatrixMut<'a>) -> Self {
        Self { m, a, b, alpha: Default::default(), offsets: None, c, workspace: None }
    }

    /// C = A·Bᵀ for `m` rows (of all groups together: what A and C have room for).
    #[inline]
    pub fn gemm(m: u32, a: Matrix<'a>, b: Matrix<'a>, c: MatrixMut<'a>) -> Self {
        Self::new(m, a, Weights::One(b), c)
    }

    /// C = act(A·B1ᵀ) ⊙ (A·B2ᵀ) for `m` rows (of all groups together: what A and C have room for).
    #[inline]
    pub fn dual_gemm(m: u32, a: Matrix<'a>, b1: Matrix<'a>, b2: Matrix<'a>, c: MatrixMut<'a>) -> Self {
        Self::new(m, a, Weights::Two(b1, b2), c)
    }

    /// Either of them with prepared weights, which know how many products they are for.
    #[inline]
    pub fn prepared(m: u32, a: Matrix<'a>, weights: &'a PreparedWeights, c: MatrixMut<'a>) -> Self {
        Self::new(m, a, Weights::Prepared(weights), c)
    }

    /// The factor of the only (or first) product; 1 if not given.
    #[inline]
    pub fn alpha(mut self, alpha: impl Into<Alpha<'a>>) -> Self {
        self.alpha[0] = alpha.into();
        self
    }

    /// The factors of both products of a dual GEMM; 1 if not given.
    #[inline]
    pub fn alphas(mut self, alpha1: impl Into<Alpha<'a>>, alpha2: impl Into<Alpha<'a>>) -> Self {
        self.alpha = [alpha1.into(), alpha2.into()];
        self
    }

    /// G + 1 row offsets, ascending from 0 to at most `m`: needed by grouped problems, and only by them.
    #[inline]
    pub fn offsets(mut self, offsets: CudaView<'a, i32>) -> Self {
        self.offsets = Some(offsets);
        self
    }

    /// At least [`Spec::workspace_bytes`](crate::spec::Spec::workspace_bytes) bytes; not needed where that is 0. Its
    /// contents before and after a launch mean nothing.
    #[inline]
    pub fn workspace(mut self, workspace: CudaViewMut<'a, u8>) -> Self {
        self.workspace = Some(workspace);
        self
    }

    /// Rows, of all groups together.
    #[must_use]
    #[inline]
    pub fn m(&self) -> u32 {
        self.m
    }

    /// Addresses of A and of the workspace (0 for none), for nothing to be done with them but to be remembered.
    pub(super) fn token_addresses(&self, stream: &CudaStream) -> [u64; 2] {
        let mut guards = Tracked::default();
        let workspace = self.workspace.as_ref().map_or(0, |workspace| guards.read(workspace, stream));
        [self.a.addresses(stream, &mut guards).0, workspace]
    }

    /// Addresses for a launch on `stream`. `guards` must live until the last launch is in the stream.
    #[inline]
    pub(super) fn params<'b>(&'b mut self, stream: &'b CudaStream, guards: &mut impl Guards<'b>) -> Params {
        let (a, a_scales) = self.a.addresses(stream, guards);
        let [b1, b2] = self.b.addresses(stream, guards);
        let step = |alpha: &Alpha<'_>| i32::from(matches!(alpha, Alpha::Device(values) if values.len() > 1));
        let value = |alpha: &Alpha<'_>| if let Alpha::Value(value) = alpha { *value } else { 1.0 };
        let [alpha1, alpha2] = &self.alpha;
        Params {
            a,
            a_scales,
            b: [b1.0, b2.0],
            b_scales: [b1.1, b2.1],
            alpha: [alpha1.address(stream, guards), alpha2.address(stream, guards)],
            offsets: self.offsets.as_ref().map_or(0, |offsets| guards.read(offsets, stream)),
            alpha_value: [value(alpha1), value(alpha2)],
            alpha_step: [step(alpha1), step(alpha2)],
            c: self.c.address(stream, guards),
            workspace: self.workspace.as_mut().map_or(0, |workspace| guards.write(workspace, stream)),
            decoded: 0,
            // M_MAX is far below.
            m: self.m as i32,
            product: 0,
            early: 0,
        }
    }
}

impl Described for Operands<'_> {
    #[inline]
    fn m(&self) -> u32 {
        self.m
    }

    #[inline]
    fn a(&self) -> MatrixSize {
        self.a.size()
    }

    #[inline]
    fn b(&self) -> WeightSizes<'_> {
        self.b.sizes()
    }

    #[inline]
    fn alpha(&self) -> [Option<Buffer>; 2] {
        self.alpha.each_ref().map(Alpha::size)
    }

    #[inline]
    fn offsets(&self) -> Option<Buffer> {
        self.offsets.as_ref().map(buffer)
    }

    #[inline]
    fn c(&self) -> MatrixSize {
        self.c.size()
    }

    #[inline]
    fn workspace(&self) -> Option<Buffer> {
        self.workspace.as_ref().map(buffer)
    }
}

#[inline]
fn buffer<T>(view: &impl DeviceSlice<T>) -> Buffer {
    let context = view.stream().context();
    Buffer { elements: view.len() as u64, context: context.cu_ctx() as usize, ordinal: context.ordinal() }
}
