//! An operand as the oracle sees it.

use std::borrow::Cow;
use std::ops::Range;

use warpsmith::format::Nvfp4Tensor;
use warpsmith::internal::Raise;
use warpsmith::{Error, Result};

/// An operand: `[rows, k]` row-major, as the exact values that a kernel multiplies, borrowed or owned.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix<'a> {
    rows: usize,
    k: usize,
    data: Cow<'a, [f32]>,
}

impl<'a> Matrix<'a> {
    /// Takes f32 values, `[rows, k]` row-major, borrowed or owned.
    ///
    /// # Errors
    /// [`Error::is_data`] if there are not `rows · k` of them.
    pub fn new(rows: usize, k: usize, data: impl Into<Cow<'a, [f32]>>) -> Result<Self> {
        let data = data.into();
        if data.len() != rows * k {
            return Err(Error::data(format!("a {rows}×{k} matrix has {} values, found {}", rows * k, data.len())));
        }
        Ok(Self { rows, k, data })
    }

    /// Converts f16 or bf16 values (exactly), `[rows, k]` row-major.
    ///
    /// # Errors
    /// [`Error::is_data`] if there are not `rows · k` of them.
    pub fn widen<T: Copy>(rows: usize, k: usize, values: &[T]) -> Result<Self>
    where
        f32: From<T>,
    {
        Self::new(rows, k, values.iter().map(|&value| f32::from(value)).collect::<Vec<_>>())
    }

    /// The number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns.
    #[must_use]
    pub fn k(&self) -> usize {
        self.k
    }

    /// All values, row-major.
    #[must_use]
    pub fn data(&self) -> &[f32] {
        &self.data
    }

    /// One row.
    ///
    /// # Panics
    /// If `row` is out of range.
    #[must_use]
    pub fn row(&self, row: usize) -> &[f32] {
        &self.data[row * self.k..(row + 1) * self.k]
    }

    /// Some of the rows, borrowed: a group's part of A.
    ///
    /// # Errors
    /// [`Error::is_data`] if the range is reversed or ends beyond the last row.
    pub fn slice(&self, rows: Range<usize>) -> Result<Matrix<'_>> {
        if rows.start > rows.end || rows.end > self.rows {
            let (start, end) = (rows.start, rows.end);
            return Err(Error::data(format!("rows {start}..{end} of a matrix of {} rows", self.rows)));
        }
        Matrix::new(rows.len(), self.k, &self.data[rows.start * self.k..rows.end * self.k])
    }
}

/// Code × block scale, exact in f32. The tensor scale is left out: it belongs to α.
impl From<&Nvfp4Tensor> for Matrix<'static> {
    fn from(tensor: &Nvfp4Tensor) -> Self {
        Self { rows: tensor.rows(), k: tensor.k(), data: Cow::Owned(tensor.dequantise_unscaled()) }
    }
}
