//! What products take of tokens.

use std::borrow::Cow;

use warpsmith::Result;
use warpsmith::format::Format;

use super::e4m3::e4m3_products;
use super::{Weight, nvfp4};
use crate::oracle::{Matrix, Products, Scaling};

/// Tokens of one call, as they are or rounded.
#[derive(Clone, Debug)]
pub struct Taken<'a> {
    /// Of NVFP4 code times block scale, in units of `factor`; else as they are given.
    values: Cow<'a, Matrix<'a>>,
    factor: f32,
    rounded: Option<Format>,
}

impl<'a> Taken<'a> {
    /// All rows of `x`, of which NVFP4 has one factor.
    ///
    /// # Errors
    /// Data, if rows are no whole blocks.
    pub fn new(x: &'a Matrix<'a>, rounded: Option<Format>) -> Result<Self> {
        let (values, factor) = match rounded {
            Some(Format::Nvfp4) => nvfp4::coded(x).map(|(values, factor)| (Cow::Owned(values), factor))?,
            _ => (Cow::Borrowed(x), 1.0),
        };
        Ok(Self { values, factor, rounded })
    }

    /// Some rows of them.
    ///
    /// # Errors
    /// None, as long as there are such rows.
    pub(super) fn rows(&self, which: impl Iterator<Item = usize> + Clone) -> Result<Taken<'static>> {
        let (count, k) = (which.clone().count(), self.values.k());
        let values: Vec<f32> = which.flat_map(|row| self.values.row(row)).copied().collect();
        let values = Cow::Owned(Matrix::new(count, k, values)?);
        Ok(Taken { values, factor: self.factor, rounded: self.rounded })
    }

    /// How many columns there are.
    #[must_use]
    pub fn k(&self) -> usize {
        self.values.k()
    }

    /// How many rows there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.values.rows()
    }

    /// Products with weights, and what else multiplies them: the factor of all is there.
    ///
    /// # Errors
    /// Those of [`Products::new`].
    pub fn products<'w>(&self, weight: &Weight<'w>) -> Result<(Products, Scaling<'w>)> {
        let products = match self.rounded {
            Some(Format::E4m3) => e4m3_products(&self.values, &weight.values)?,
            _ => Products::new(&self.values, &weight.values)?,
        };
        Ok((products, times(weight.scaling, self.factor)))
    }
}

/// With one more factor, which is multiplied in f32.
pub(super) fn times(scaling: Scaling<'_>, factor: f32) -> Scaling<'_> {
    Scaling { alpha: scaling.alpha * factor, ..scaling }
}
