//! One product of a module.

use std::ops::Range;

use warpsmith::format::Format;
use warpsmith::internal::Raise;
use warpsmith::{Error, Result};

use crate::folder::Tensor;
use crate::weight::Weight;

/// `y = x·Wᵀ + b`, W `[N, K]` in one or more parts, one below the other (such as q, k and v).
#[derive(Clone, Debug)]
pub struct Product<'a> {
    parts: Vec<Weight<'a>>,
    bias: Option<Bias>,
}

/// What is added to a product, `[N]`.
#[derive(Clone, Debug)]
pub struct Bias {
    /// The format that it is stored in.
    pub format: Format,
    /// Its values.
    pub values: Vec<f32>,
}

impl Bias {
    /// From a tensor `[N]`, or a row of one.
    pub(super) fn of(tensor: Tensor<'_>, range: Range<usize>, step: usize) -> Result<Self> {
        use safetensors::Dtype;
        let format = match tensor.is(&[Dtype::F16, Dtype::BF16, Dtype::F32])?.dtype {
            Dtype::F16 => Format::F16,
            Dtype::BF16 => Format::Bf16,
            _ => Format::F32,
        };
        let values = tensor.values()?;
        let values: Vec<f32> = values.get(range).unwrap_or_default().iter().copied().step_by(step).collect();
        match values.iter().position(|value| !value.is_finite()) {
            Some(at) => Err(tensor.wrong(format!("is {} at {at}", values[at]))),
            None => Ok(Self { format, values }),
        }
    }
}

impl<'a> Product<'a> {
    /// Of parts with the same K, and a bias for all their rows.
    pub(super) fn new(parts: Vec<Weight<'a>>, bias: Option<Bias>) -> Result<Self> {
        let product = Self { parts, bias };
        let (n, k) = (product.rows(), product.columns());
        if let Some(part) = product.parts.iter().find(|part| part.columns() != k) {
            let (name, found) = (part.name(), part.columns());
            return Err(Error::data(format!("weight `{name}` has K = {found}, what is fused with it {k}")));
        }
        match &product.bias {
            Some(bias) if bias.values.len() != n => {
                let found = bias.values.len();
                Err(Error::data(format!("the bias of `{}` has {found} elements, expected {n}", product.name())))
            }
            _ => Ok(product),
        }
    }

    /// Of its first part.
    pub(crate) fn name(&self) -> &str {
        self.parts.first().map_or("", Weight::name)
    }

    /// W, from top to bottom.
    #[must_use]
    pub fn parts(&self) -> &[Weight<'a>] {
        &self.parts
    }

    /// What is added, if anything is.
    #[must_use]
    pub fn bias(&self) -> Option<&Bias> {
        self.bias.as_ref()
    }

    /// That of the bias, if there is one.
    pub(super) fn bias_format(&self) -> Option<Format> {
        self.bias.as_ref().map(|bias| bias.format)
    }

    /// N.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.parts.iter().map(Weight::rows).sum()
    }

    /// K.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.parts.first().map_or(0, Weight::columns)
    }

    /// W, dequantised, `[N, K]`.
    ///
    /// # Errors
    /// Data, if a scale is NaN.
    pub fn dequantised(&self) -> Result<Vec<f32>> {
        let mut values = Vec::with_capacity(self.rows() * self.columns());
        for part in &self.parts {
            for row in 0..part.rows() {
                values.extend(part.dequantised(row)?);
            }
        }
        Ok(values)
    }

    /// Some rows: what a device of several has of a product whose results are divided.
    ///
    /// # Errors
    /// Data, if they are not there.
    pub fn some_rows(self, rows: Range<usize>) -> Result<Self> {
        if rows.start > rows.end || rows.end > self.rows() {
            let (from, to, all) = (rows.start, rows.end, self.rows());
            return Err(Error::data(format!("rows {from} to {to}: there are {all}")));
        }
        let (mut first, mut parts) = (0, Vec::new());
        for part in self.parts {
            let end = first + part.rows();
            let own = rows.start.clamp(first, end) - first..rows.end.clamp(first, end) - first;
            if !own.is_empty() {
                parts.push(part.some_rows(own)?);
            }
            first = end;
        }
        let bias = self.bias.map(|bias| Bias { values: bias.values[rows].to_vec(), ..bias });
        Self::new(parts, bias)
    }

    /// Some columns: what a device of several has of a product whose operands are divided. The bias is that of the first.
    ///
    /// # Errors
    /// Data, if they are not there, or not whole blocks.
    pub fn some_columns(self, columns: Range<usize>) -> Result<Self> {
        let bias = if columns.start == 0 { self.bias } else { None };
        let parts = self.parts.into_iter().map(|part| part.some_columns(columns.clone()));
        Self::new(parts.collect::<Result<_>>()?, bias)
    }
}
