//! Elements of a matrix, where they lie in a tensor.

use std::ops::Range;

use warpsmith::internal::Raise;
use warpsmith::{Error, Result};

use crate::folder::Tensor;

/// `[rows, columns]` elements of `size` bytes each, at steps of so many elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid<'a> {
    bytes: &'a [u8],
    size: usize,
    first: usize,
    rows: usize,
    columns: usize,
    row_step: usize,
    column_step: usize,
}

impl<'a> Grid<'a> {
    /// A whole tensor, `[rows, …]`, of elements of `size` bytes: what follows the first axis are columns.
    pub(crate) fn of(tensor: Tensor<'a>, size: usize) -> Result<Self> {
        match *tensor.shape {
            [rows, ref columns @ ..] if !columns.is_empty() => {
                let columns = columns.iter().product();
                Ok(Self { bytes: tensor.bytes, size, first: 0, rows, columns, row_step: columns, column_step: 1 })
            }
            _ => Err(tensor.wrong(format!("has shape {:?}, expected a matrix", tensor.shape))),
        }
    }

    /// A matrix of a stack `[E, rows, columns]`, or where they are `transposed` `[E, columns, rows]`.
    pub(crate) fn of_stack(tensor: Tensor<'a>, size: usize, at: usize, transposed: bool) -> Result<Self> {
        let [count, outer, ref inner @ ..] = *tensor.shape else {
            return Err(tensor.wrong(format!("has shape {:?}, expected a stack of matrices", tensor.shape)));
        };
        let inner: usize = inner.iter().product();
        if at >= count {
            return Err(tensor.wrong(format!("has {count} matrices, number {at} is asked for")));
        }
        let first = at * outer * inner;
        Ok(match transposed {
            false => {
                Self { bytes: tensor.bytes, size, first, rows: outer, columns: inner, row_step: inner, column_step: 1 }
            }
            true => {
                Self { bytes: tensor.bytes, size, first, rows: inner, columns: outer, row_step: 1, column_step: inner }
            }
        })
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    pub(crate) fn row_bytes(&self) -> usize {
        self.columns * self.size
    }

    /// All bytes, where they lie one row behind the other.
    pub(crate) fn all(&self) -> Option<&'a [u8]> {
        let is_dense = self.column_step == 1 && self.row_step == self.columns;
        is_dense.then(|| &self.bytes[self.first * self.size..(self.first + self.rows * self.columns) * self.size])
    }

    /// Some of the rows: every `step`-th of a range.
    pub(crate) fn some_rows(self, range: Range<usize>, step: usize) -> Result<Self> {
        within(&range, self.rows, "rows")?;
        let (first, rows) = (self.first + range.start * self.row_step, range.len().div_ceil(step));
        Ok(Self { first, rows, row_step: self.row_step * step, ..self })
    }

    /// Some of the columns.
    pub(crate) fn some_columns(self, range: Range<usize>) -> Result<Self> {
        within(&range, self.columns, "columns")?;
        Ok(Self { first: self.first + range.start * self.column_step, columns: range.len(), ..self })
    }

    /// The bytes of a row, in the memory that they lie in, or in `room`.
    ///
    /// # Panics
    /// Never for a row that is there.
    pub(crate) fn row<'r>(&self, row: usize, room: &'r mut Vec<u8>) -> &'r [u8]
    where
        'a: 'r,
    {
        let Self { bytes, size, columns, column_step, .. } = *self;
        let first = self.first + row * self.row_step;
        if column_step == 1 {
            return &bytes[first * size..(first + columns) * size];
        }
        room.clear();
        for column in 0..columns {
            let at = (first + column * column_step) * size;
            room.extend_from_slice(&bytes[at..at + size]);
        }
        room
    }
}

/// Refuses a range that is not within `0..count`.
fn within(range: &Range<usize>, count: usize, what: &str) -> Result<()> {
    if range.start <= range.end && range.end <= count {
        return Ok(());
    }
    Err(Error::data(format!("{what} {} to {}: there are {count}", range.start, range.end)))
}
