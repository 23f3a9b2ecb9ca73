//! Matrices of values, cut among threads.

use std::ops::Range;
use std::thread;

use half::{bf16, f16};
use safetensors::Dtype;
use warpsmith::Result;
use warpsmith::format::Format;
use warpsmith::internal::Raise;
use warpsmith::internal::format::BLOCK;

use super::Scales;
use super::block::{Rule, factor};
use crate::weight::{Factor, Grid, Source, Weight};

/// Elements that one thread has at least.
const SHARE: usize = 1 << 15;

/// A matrix of f16, bf16 or f32 values.
#[derive(Clone, Debug)]
pub(super) struct Matrix<'a> {
    name: String,
    dtype: Dtype,
    values: Grid<'a>,
}

/// Sums of squares over a matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Squares {
    pub(super) values: f64,
    pub(super) error: f64,
    /// That of the plain rule.
    pub(super) plain: f64,
}

impl std::ops::AddAssign for Squares {
    fn add_assign(&mut self, other: Self) {
        self.values += other.values;
        self.error += other.error;
        self.plain += other.plain;
    }
}

/// A quantised matrix.
#[derive(Debug)]
pub(super) struct Coded {
    /// `[N, K/2]`
    pub(super) codes: Vec<u8>,
    /// `[N, K/16]`
    pub(super) scales: Vec<u8>,
    pub(super) squares: Squares,
}

impl<'a> Matrix<'a> {
    /// One that is not quantised yet.
    pub(super) fn of(weight: &Weight<'a>, name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        match weight.plain() {
            Some((dtype, values)) => Ok(Self { name, dtype, values }),
            None => Err(warpsmith::Error::unsupported(format!(
                "weight `{name}` is {}: f16, bf16 and f32 are quantised",
                weight.storage()
            ))),
        }
    }

    pub(super) fn rows(&self) -> usize {
        self.values.rows()
    }

    pub(super) fn columns(&self) -> usize {
        self.values.columns()
    }

    pub(super) fn row_bytes(&self) -> usize {
        self.values.row_bytes()
    }

    /// Bytes that it lies in.
    pub(super) fn bytes(&self) -> u64 {
        (self.rows() * self.columns() * self.dtype.bitsize() / 8) as u64
    }

    /// Of its values.
    pub(super) fn format(&self) -> Format {
        match self.dtype {
            Dtype::F16 => Format::F16,
            Dtype::BF16 => Format::Bf16,
            _ => Format::F32,
        }
    }

    /// The bytes of some rows, one behind the other.
    pub(super) fn part(&self, rows: Range<usize>) -> Result<Source<'a>> {
        self.values.some_rows(rows, 1).map(Source::Rows)
    }

    /// The largest magnitude of each row: NaN or infinite, where one of its values is.
    pub(super) fn largest(&self, threads: usize) -> Vec<f32> {
        let mut of_rows = vec![0.0f32; self.rows()];
        let share = self.share(threads);
        thread::scope(|scope| {
            for (part, of_rows) in of_rows.chunks_mut(share).enumerate() {
                let work = move || {
                    let (mut bytes, mut values) = (Vec::new(), Vec::new());
                    for (row, largest) in (part * share..).zip(of_rows) {
                        self.row(row, &mut bytes, &mut values);
                        // NaN wins, and so does an infinity.
                        *largest = values.iter().fold(0.0, |largest: f32, value| {
                            let magnitude = value.abs();
                            if magnitude <= largest { largest } else { magnitude + 0.0 * largest }
                        });
                    }
                };
                if share < self.rows() { drop(scope.spawn(work)) } else { work() }
            }
        });
        of_rows
    }

    /// The largest magnitude, from those of rows.
    ///
    /// # Errors
    /// Data, if a value is NaN or infinite; the first is named.
    pub(super) fn amax(&self, of_rows: &[f32]) -> Result<f32> {
        if let Some(row) = of_rows.iter().position(|largest| !largest.is_finite()) {
            let (mut bytes, mut values) = (Vec::new(), Vec::new());
            self.row(row, &mut bytes, &mut values);
            let column = values.iter().position(|value| !value.is_finite()).unwrap_or_default();
            return Err(warpsmith::Error::data(format!(
                "weight `{}`: the value at row {row}, column {column} is {}: NVFP4 cannot hold it",
                self.name,
                values.get(column).copied().unwrap_or(f32::NAN)
            )));
        }
        Ok(of_rows.iter().copied().fold(0.0, f32::max))
    }

    /// Quantised, under the factor for this largest magnitude, which a reader applies as `stored` says. The same for any
    /// number of threads: sums are those of blocks, in their order, and then of rows.
    pub(super) fn coded(&self, scales: Scales, amax: f32, stored: impl Fn(f32) -> Factor, threads: usize) -> Coded {
        let (rows, blocks) = (self.rows(), self.columns() / BLOCK);
        let factor = factor(amax);
        let rule = Rule::new(scales, factor, stored(factor));
        let mut codes = vec![0; rows * blocks * BLOCK / 2];
        let mut of_blocks = vec![0; rows * blocks];
        let mut of_rows = vec![Squares::default(); rows];
        let share = self.share(threads);
        // A matrix without columns has no blocks.
        let step = (share * blocks).max(1);
        thread::scope(|scope| {
            let parts =
                codes.chunks_mut(step * BLOCK / 2).zip(of_blocks.chunks_mut(step)).zip(of_rows.chunks_mut(share));
            for (part, ((codes, scales), of_rows)) in parts.enumerate() {
                let rule = &rule;
                let work = move || {
                    let (mut bytes, mut values) = (Vec::new(), Vec::new());
                    let mut blocks_out = codes.as_chunks_mut::<{ BLOCK / 2 }>().0.iter_mut().zip(scales);
                    for (row, squares) in (part * share..).zip(of_rows) {
                        self.row(row, &mut bytes, &mut values);
                        for (block, (codes, scale)) in values.as_chunks::<BLOCK>().0.iter().zip(&mut blocks_out) {
                            let found = rule.block(block);
                            (*codes, *scale) = (found.codes, found.scale);
                            *squares += found.squares;
                        }
                    }
                };
                if share < rows { drop(scope.spawn(work)) } else { work() }
            }
        });
        let mut squares = Squares::default();
        of_rows.into_iter().for_each(|of_row| squares += of_row);
        Coded { codes, scales: of_blocks, squares }
    }

    /// Rows that a thread has.
    fn share(&self, threads: usize) -> usize {
        let least = SHARE.div_ceil(self.columns().max(1));
        self.rows().div_ceil(threads.max(1)).max(least).max(1)
    }

    fn row(&self, row: usize, bytes: &mut Vec<u8>, values: &mut Vec<f32>) {
        let bytes = self.values.row(row, bytes);
        values.clear();
        let pairs = bytes.as_chunks::<2>().0;
        match self.dtype {
            Dtype::F16 => values.extend(pairs.iter().map(|pair| f16::from_le_bytes(*pair).to_f32())),
            Dtype::BF16 => values.extend(pairs.iter().map(|pair| bf16::from_le_bytes(*pair).to_f32())),
            _ => values.extend(bytes.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four))),
        }
    }
}
