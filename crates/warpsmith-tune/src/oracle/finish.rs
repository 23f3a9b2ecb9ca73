//! From products to expected elements: α, activation, output format, and the error each may add. The derivation of
//! the bound is in the [module's](super) documentation; the functions here follow it line by line.

use super::activation::{activated, passed};
use super::expected::check_output;
use super::uncertain::Uncertain;
use super::{Matrix, Products, Reference};
use warpsmith::format::Format;
use warpsmith::internal::Raise;
use warpsmith::spec::Activation;
use warpsmith::{Error, Result};

/// Products that a tensor core adds in one step.
const STEP: f64 = 16.0;
/// Sums of e4m3 products with a larger span may be cut off, by so much of the magnitude.
const SPAN: f64 = (1 << 13) as f64;
const CUT: f64 = 140.0 / SPAN;
/// Error of a step, relative to the magnitude summed: 2⁻²².
const STEP_ERROR: f64 = 1.0 / (1 << 22) as f64;
/// Error of a rounding to nearest: 2⁻²⁴.
const ROUNDING: f64 = STEP_ERROR / 4.0;
/// What is done to the products A·Bᵀ of one B before the activation: p(x) = α·x, times the row of B's factor, plus the
/// column's bias. A number converts into it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaling<'a> {
    /// Everything that multiplies all products: tensor scales of both operands and the caller's factor.
    pub alpha: f32,
    /// A factor for each row of B, which is a column of the products.
    pub row_scale: Option<&'a [f32]>,
    /// What is added to each column.
    pub bias: Option<&'a [f32]>,
}

impl From<f32> for Scaling<'_> {
    fn from(alpha: f32) -> Self {
        Self { alpha, row_scale: None, bias: None }
    }
}

impl Scaling<'_> {
    fn check(&self, products: &Products) -> Result<()> {
        self.check_columns(products.n())
    }

    pub(super) fn check_columns(&self, columns: usize) -> Result<()> {
        for (what, values) in [("row factors", self.row_scale), ("addends", self.bias)] {
            if let Some(values) = values
                && values.len() != columns
            {
                return Err(Error::data(format!("{} {what} for {columns} columns", values.len())));
            }
        }
        Ok(())
    }
}

/// How a result leaves: its format, and what its rows are multiplied with before. A format converts into it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Leaving<'a> {
    /// f16, bf16 or f32.
    pub output: Format,
    /// A factor for each row, applied in f32 behind everything else.
    pub factors: Option<&'a [f32]>,
}

impl From<Format> for Leaving<'_> {
    fn from(output: Format) -> Self {
        Self { output, factors: None }
    }
}

impl Leaving<'_> {
    fn check(&self, products: &Products) -> Result<()> {
        match self.factors {
            Some(factors) if factors.len() != products.m() => {
                Err(Error::data(format!("{} factors for {} rows", factors.len(), products.m())))
            }
            _ => check_output(self.output),
        }
    }

    /// `elements` are those of `n` columns.
    fn reference(self, m: usize, n: usize, elements: impl Iterator<Item = Uncertain>) -> Result<Reference> {
        let Self { output, factors } = self;
        let finished = elements.enumerate().map(|(index, element)| {
            let element = factors.map_or(element, |factors| element.times(factors[index / n]));
            element.finished(output)
        });
        Reference::new(m, n, output, finished.collect())
    }
}

/// What C = act(p(A·Bᵀ)) should be, from the products A·Bᵀ: `[M, N]`.
///
/// ```
/// use warpsmith::format::Format;
/// use warpsmith::spec::Activation;
/// use warpsmith_tune::oracle::{Matrix, Products, gemm};
/// let a = Matrix::new(1, 2, vec![1.0, 2.0])?;
/// let b = Matrix::new(1, 2, vec![3.0, 4.0])?;
/// let reference = gemm(&Products::new(&a, &b)?, 0.5, Activation::None, Format::F16)?;
/// assert!(reference.elements()[0].accepts(5.5, Format::F16));
/// assert!(!reference.elements()[0].accepts(5.51, Format::F16));
/// # Ok::<(), warpsmith::Error>(())
/// ```
///
/// # Errors
/// [`Error::is_unsupported`] if the output is not f16, bf16 or f32; [`Error::is_data`] if `scaling` is of another number of
/// columns, or factors of another number of rows.
pub fn gemm<'a>(
    products: &Products,
    scaling: impl Into<Scaling<'a>>,
    activation: Activation,
    leaving: impl Into<Leaving<'a>>,
) -> Result<Reference> {
    let (scaling, leaving) = (scaling.into(), leaving.into());
    leaving.check(products)?;
    scaling.check(products)?;
    let elements = scaled(products, scaling).map(|x| activated(x, activation));
    leaving.reference(products.m(), products.n(), elements)
}

/// What C = act(p₁(A·B1ᵀ)) ⊙ p₂(A·B2ᵀ) should be, from the products `gate` = A·B1ᵀ and `up` = A·B2ᵀ: `[M, N]`.
/// `scaling` is `[p₁, p₂]`; the activation sees the scaled gate, and the scaled up where it changes that.
///
/// # Errors
/// [`Error::is_data`] if the two products differ in shape, or a scaling is of another number of columns, or factors of another
/// number of rows; [`Error::is_unsupported`] if the output is not f16, bf16 or f32.
pub fn dual_gemm<'a>(
    gate: &Products,
    up: &Products,
    scaling: [impl Into<Scaling<'a>>; 2],
    activation: Activation,
    leaving: impl Into<Leaving<'a>>,
) -> Result<Reference> {
    let shape = |products: &Products| (products.m(), products.n(), products.k());
    if shape(gate) != shape(up) {
        return Err(Error::data(format!("gate is {:?} and up is {:?} as (m, n, k)", shape(gate), shape(up))));
    }
    let ([first, second], leaving) = (scaling.map(Into::into), leaving.into());
    leaving.check(gate)?;
    first.check(gate)?;
    second.check(up)?;
    let elements = scaled(gate, first)
        .zip(scaled(up, second))
        .map(|(gate, up)| activated(gate, activation).multiplied(passed(up, activation)));
    leaving.reference(gate.m(), gate.n(), elements)
}

/// A grouped operation: `single` is called with every group's number and its rows of `a`, and the results follow one
/// another as the rows do. `offsets` are G + 1 row numbers, from 0 to the rows of `a`; a group may be empty.
///
/// # Errors
/// [`Error::is_data`] if the offsets do not begin with 0, fall, or do not end with the rows of `a`, or if the groups
/// differ in N or output format; and what `single` returns.
pub fn grouped(
    a: &Matrix,
    offsets: &[usize],
    mut single: impl FnMut(usize, &Matrix) -> Result<Reference>,
) -> Result<Reference> {
    let (Some(0), Some(&last)) = (offsets.first(), offsets.last()) else {
        return Err(Error::data("a grouped operation has G + 1 row offsets, the first of them 0"));
    };
    if last != a.rows() || offsets.len() < 2 {
        let (rows, groups) = (a.rows(), offsets.len() - 1);
        return Err(Error::data(format!("the offsets of {groups} groups end at row {last}, A has {rows} rows")));
    }
    let mut whole: Option<(usize, Format)> = None;
    let mut elements = Vec::new();
    for (group, ends) in offsets.windows(2).enumerate() {
        let doing = |error: Error| error.context(format!("group {group}"));
        let part = single(group, &a.slice(ends[0]..ends[1]).map_err(doing)?).map_err(doing)?;
        let form = (part.n(), part.output());
        if *whole.get_or_insert(form) != form || part.m() != ends[1] - ends[0] {
            return Err(Error::data(format!("group {group} has another shape or format than its rows and group 0")));
        }
        elements.extend_from_slice(part.elements());
    }
    match whole {
        Some((n, output)) => Reference::new(a.rows(), n, output, elements),
        None => Err(Error::data("a grouped operation has at least one group")),
    }
}

/// p(Σ a·b ± accumulation), for every element.
fn scaled<'a>(products: &'a Products, scaling: Scaling<'a>) -> impl Iterator<Item = Uncertain> + 'a {
    let columns = (0..products.n().max(1)).cycle();
    let sums = products.value().iter().zip(products.magnitude()).zip(columns).enumerate();
    sums.map(move |(at, ((&value, &magnitude), column))| {
        let sum = Sum { value, magnitude, carried: 0.0, terms: products.k() };
        match products.span(at) {
            None => sum.scaled(&scaling, column),
            Some(span) => sum.added_along_k(products.roundings()).cut(span).scaled(&scaling, column),
        }
    })
}

/// One Σ a·b.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sum {
    pub(super) value: f64,
    /// Σ |a·b|, for the largest that a may be.
    pub(super) magnitude: f64,
    /// Σ of how far each a is off, times |b|.
    pub(super) carried: f64,
    pub(super) terms: usize,
}

impl Sum {
    /// All of it times a row's factor.
    pub(super) fn times(self, factor: f64) -> Self {
        let Self { value, magnitude, carried, terms } = self;
        Self { value: value * factor, magnitude: magnitude * factor, carried: carried * factor, terms }
    }

    /// The same, where so often the sum over a part of K is multiplied with a factor and added to the others.
    fn added_along_k(self, roundings: usize) -> Self {
        Self { carried: self.carried + roundings as f64 * ROUNDING * self.magnitude, ..self }
    }

    /// The same of e4m3 products, whose bits lie so far apart. Where all sums are exact, what is
    /// left is what f32 rounds as sums meet, which are no steps of K.
    pub(super) fn cut(self, span: f64) -> Self {
        if span <= SPAN {
            return Self { terms: 0, ..self };
        }
        Self { carried: self.carried + CUT * self.magnitude, ..self }
    }

    /// p(Σ a·b ± accumulation ± what a is off), of a column.
    pub(super) fn scaled(&self, scaling: &Scaling<'_>, column: usize) -> Uncertain {
        let Sum { value, magnitude, carried, terms } = *self;
        let Scaling { alpha, row_scale, bias } = *scaling;
        let alpha = f64::from(alpha);
        let steps = terms as f64 / STEP + 16.0;
        // Products and partial sums below f32's normal range may be flushed.
        let flushed = terms as f64 * f64::from(f32::MIN_POSITIVE);
        let overflows = magnitude > f64::from(f32::MAX);
        let sum = steps * STEP_ERROR * magnitude + flushed + carried;
        let error = if overflows { f64::INFINITY } else { alpha.abs() * sum };
        let product = Uncertain { value: alpha * value, error }.rounded();
        let product = row_scale.map_or(product, |factors| product.times(factors[column]));
        bias.map_or(product, |addends| product.plus(addends[column]))
    }
}
