//! Up and down.

use std::ops::Range;

use warpsmith::internal::Raise;
use warpsmith::spec::Activation;
use warpsmith::{Error, Result};

use super::Product;

/// `y = act(x·Wgateᵀ) ⊙ (x·Wupᵀ) · Wdownᵀ`, or without a gate `act(x·Wupᵀ) · Wdownᵀ`.
#[derive(Clone, Debug)]
pub struct Mlp<'a> {
    activation: Activation,
    gate: Option<Product<'a>>,
    up: Product<'a>,
    down: Product<'a>,
}

impl<'a> Mlp<'a> {
    pub(super) fn new(
        activation: Activation,
        gate: Option<Product<'a>>,
        up: Product<'a>,
        down: Product<'a>,
        [hidden, intermediate]: [usize; 2],
    ) -> Result<Self> {
        let first = gate.iter().chain([&up]).map(|product| (product, [intermediate, hidden]));
        for (product, expected) in first.chain([(&down, [hidden, intermediate])]) {
            let found = [product.rows(), product.columns()];
            if found != expected {
                let name = product.name();
                return Err(Error::data(format!("weight `{name}` is {found:?}, the configuration says {expected:?}")));
            }
        }
        if gate.iter().chain([&down]).any(|product| product.bias_format() != up.bias_format()) {
            return Err(mixed_biases(&up));
        }
        Ok(Self { activation, gate, up, down })
    }

    /// Refuses MLPs whose biases are not all of one format: a layer has one for all its experts.
    pub(super) fn check_biases(all: &[Self]) -> Result<()> {
        let mut ups = all.iter().map(Self::up);
        let Some(format) = ups.next().map(Product::bias_format) else { return Ok(()) };
        ups.find(|up| up.bias_format() != format).map_or(Ok(()), |up| Err(mixed_biases(up)))
    }

    /// Of the gate, or of the only first product.
    #[must_use]
    pub fn activation(&self) -> Activation {
        self.activation
    }

    /// `[I, H]`, if there is a gate.
    #[must_use]
    pub fn gate(&self) -> Option<&Product<'a>> {
        self.gate.as_ref()
    }

    /// `[I, H]`.
    #[must_use]
    pub fn up(&self) -> &Product<'a> {
        &self.up
    }

    /// `[H, I]`.
    #[must_use]
    pub fn down(&self) -> &Product<'a> {
        &self.down
    }

    /// Gate (if there is one), up, down.
    pub(crate) fn products(&self) -> impl Iterator<Item = &Product<'a>> + Clone {
        self.gate.iter().chain([&self.up, &self.down])
    }

    /// H.
    #[must_use]
    pub fn hidden_size(&self) -> usize {
        self.up.columns()
    }

    /// I.
    #[must_use]
    pub fn intermediate_size(&self) -> usize {
        self.up.rows()
    }

    /// A part of I: what a device of several has. The results of all are added.
    ///
    /// # Errors
    /// Data, if it is not there, or not whole blocks.
    pub fn some_intermediate(self, range: Range<usize>) -> Result<Self> {
        let Self { activation, gate, up, down } = self;
        Ok(Self {
            activation,
            gate: gate.map(|gate| gate.some_rows(range.clone())).transpose()?,
            up: up.some_rows(range.clone())?,
            down: down.some_columns(range)?,
        })
    }
}

/// Of products that are used together, of which this is one.
fn mixed_biases(of: &Product<'_>) -> Error {
    let name = of.name();
    Error::unsupported(format!("around `{name}`: products with and without a bias, or of two formats"))
}
