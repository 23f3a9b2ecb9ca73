//! Σ a·b and Σ |a·b| for every element, in f64.

use super::Matrix;
use crate::cores::{cores, each_part};
use warpsmith::internal::Raise;
use warpsmith::{Error, Result};

/// Independent accumulators of a sum: enough to keep the adders busy.
const LANES: usize = 8;

/// For every element (row m, column n) of A·Bᵀ: the value Σ a·b and the magnitude Σ |a·b|, both `[M, N]` row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Products {
    m: usize,
    n: usize,
    k: usize,
    value: Vec<f64>,
    magnitude: Vec<f64>,
    /// How far apart the bits of the sums of e4m3 products may lie, if they are such.
    span: Option<Vec<f64>>,
    /// How often a sum of those is multiplied with a factor and added to another, rounded once.
    roundings: usize,
}

/// Elements along K after which sums of e4m3 products go into one of f32.
pub(crate) const CHUNK: usize = 128;

impl Products {
    /// A·Bᵀ by the definition, for A `[M, K]` and B `[N, K]`; the rows are spread over the machine's cores.
    ///
    /// Every a·b is exact in f64. So are the sums of NVFP4 × NVFP4 up to some thousands of K, since all terms are
    /// multiples of 2⁻²⁰.
    ///
    /// # Errors
    /// [`Error::is_data`] if the two K differ.
    pub fn new(a: &Matrix, b: &Matrix) -> Result<Self> {
        if a.k() != b.k() {
            return Err(Error::data(format!("A has k = {} and B has k = {}", a.k(), b.k())));
        }
        let (m, n, k) = (a.rows(), b.rows(), a.k());
        let (mut value, mut magnitude) = (vec![0.0; m * n], vec![0.0; m * n]);
        let rows = m.div_ceil(cores()).max(1);
        let parts = value.chunks_mut((rows * n).max(1)).zip(magnitude.chunks_mut((rows * n).max(1)));
        each_part(parts.enumerate(), |(part, (value, magnitude))| multiply(a, b, *part * rows, value, magnitude));
        Ok(Self { m, n, k, value, magnitude, span: None, roundings: 0 })
    }

    /// The same of e4m3 values, where each row of A has a factor for each 128 of K, `[M, ⌈K/128⌉]`, with which the sum over those
    /// is multiplied.
    ///
    /// # Errors
    /// Those of [`Products::new`]; [`Error::is_data`] if there are not so many factors.
    pub fn scaled_along_k(a: &Matrix, b: &Matrix, factors: &[f64]) -> Result<Self> {
        let mut products = Self::new(a, b)?;
        let (m, n, chunks) = (products.m, products.n, products.k.div_ceil(CHUNK));
        if factors.len() != m * chunks {
            return Err(Error::data(format!("{m} rows of {chunks} factors are needed, found {}", factors.len())));
        }
        for at in 0..m * n {
            let pairs = a.row(at / n).chunks(CHUNK).zip(b.row(at % n).chunks(CHUNK));
            let sums = pairs.map(|(x, y)| dot(x, y)).zip(&factors[at / n * chunks..]);
            let added = sums.fold((0.0, 0.0), |(value, magnitude), (sum, factor)| {
                (value + sum.0 * factor, magnitude + sum.1 * factor.abs())
            });
            (products.value[at], products.magnitude[at]) = added;
        }
        Ok(products.rounded_along_k())
    }

    /// The same, where factors are in what was computed elsewhere: what it takes to add each 128 of K to the others.
    #[must_use]
    pub fn rounded_along_k(self) -> Self {
        Self { roundings: self.k.div_ceil(CHUNK), ..self }
    }

    /// Takes sums computed elsewhere, by a matrix library in f64, say: `value` = Σ a·b and `magnitude` = Σ |a·b| over
    /// `k` terms, each `[m, n]` row-major. Their own error has to be far below 2⁻²²·Σ|a·b|, as it is for any order of
    /// summation in f64.
    ///
    /// # Errors
    /// [`Error::is_data`] if there are not `m · n` of each.
    pub fn from_parts(m: usize, n: usize, k: usize, value: Vec<f64>, magnitude: Vec<f64>) -> Result<Self> {
        for (what, found) in [("values", value.len()), ("magnitudes", magnitude.len())] {
            if found != m * n {
                return Err(Error::data(format!("{m}×{n} products have {} {what}, found {found}", m * n)));
            }
        }
        Ok(Self { m, n, k, value, magnitude, span: None, roundings: 0 })
    }

    /// The same of e4m3 values `a` and `b`, which are multiplied and added as such.
    #[must_use]
    pub fn cut_in_chunks(self, a: &Matrix, b: &Matrix) -> Self {
        let chunk = |row: usize, column: usize| {
            let pairs = a.row(row).chunks(CHUNK).zip(b.row(column).chunks(CHUNK));
            pairs.map(|(x, y)| dot(x, y).1).fold(0.0, f64::max)
        };
        let chunks = (0..self.m * self.n).map(|at| chunk(at / self.n, at % self.n)).collect();
        let grains = |of: &Matrix| -> Vec<f64> {
            (0..of.rows()).map(|row| grain(of.row(row).iter().map(|x| f64::from(*x)))).collect()
        };
        self.cut(chunks, &grains(a), &grains(b))
    }

    /// The same, where the largest of Σ |a·b| over 128 of K is known for each element, `[m, n]`, and for each row of both the
    /// grain: the least power of two that all values are multiples of.
    #[must_use]
    pub fn cut(self, chunks: Vec<f64>, a_grains: &[f64], b_grains: &[f64]) -> Self {
        let span = |(at, chunk): (usize, f64)| {
            if chunk == 0.0 { 0.0 } else { chunk / (a_grains[at / self.n] * b_grains[at % self.n]) }
        };
        Self { span: Some(chunks.into_iter().enumerate().map(span).collect()), ..self }
    }

    /// Multiplies each row with a factor.
    pub fn scale_rows(&mut self, factors: &[f64]) {
        let n = self.n.max(1);
        for (row, factor) in factors.iter().enumerate() {
            self.value[row * n..][..self.n].iter_mut().for_each(|value| *value *= factor);
            self.magnitude[row * n..][..self.n].iter_mut().for_each(|value| *value *= factor.abs());
        }
    }

    /// Of sums of e4m3 products the largest magnitude of 128 of K over what all products are multiples of: up to 2¹³ such sums
    /// are exact.
    pub(super) fn span(&self, at: usize) -> Option<f64> {
        self.span.as_ref().map(|span| span[at])
    }

    /// How often a sum of e4m3 products is multiplied and added.
    pub(super) fn roundings(&self) -> usize {
        self.roundings
    }

    /// The number of rows.
    #[must_use]
    pub fn m(&self) -> usize {
        self.m
    }

    /// The number of columns.
    #[must_use]
    pub fn n(&self) -> usize {
        self.n
    }

    /// The number of terms of every sum.
    #[must_use]
    pub fn k(&self) -> usize {
        self.k
    }

    /// Σ a·b, `[M, N]` row-major.
    #[must_use]
    pub fn value(&self) -> &[f64] {
        &self.value
    }

    /// Σ |a·b|, `[M, N]` row-major.
    #[must_use]
    pub fn magnitude(&self) -> &[f64] {
        &self.magnitude
    }
}

/// Fills whole rows of the result, beginning with row `first`.
fn multiply(a: &Matrix, b: &Matrix, first: usize, value: &mut [f64], magnitude: &mut [f64]) {
    let n = b.rows();
    for (at, (value, magnitude)) in value.iter_mut().zip(magnitude).enumerate() {
        (*value, *magnitude) = dot(a.row(first + at / n), b.row(at % n));
    }
}

/// The least power of two that all values are multiples of; infinite, if they are zeros.
pub(crate) fn grain(values: impl Iterator<Item = f64>) -> f64 {
    let exponent = |value: f64| {
        let bits = value.to_bits();
        (bits >> 52 & 0x7FF) as i32 - 1075 + (bits | 1 << 52).trailing_zeros() as i32
    };
    let least = values.filter(|value| *value != 0.0 && value.is_finite()).map(exponent).min();
    least.map_or(f64::INFINITY, |least| 2f64.powi(least))
}

/// Σ x·y and Σ |x·y|.
fn dot(x: &[f32], y: &[f32]) -> (f64, f64) {
    let (mut value, mut magnitude) = ([0.0; LANES], [0.0; LANES]);
    for (x, y) in x.chunks(LANES).zip(y.chunks(LANES)) {
        for (lane, (&x, &y)) in x.iter().zip(y).enumerate() {
            let product = f64::from(x) * f64::from(y);
            value[lane] += product;
            magnitude[lane] += product.abs();
        }
    }
    (value.iter().sum(), magnitude.iter().sum())
}
