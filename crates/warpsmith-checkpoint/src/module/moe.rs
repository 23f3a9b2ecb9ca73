//! Experts.

use std::ops::Range;

use warpsmith::internal::Raise;
use warpsmith::{Error, Result};

use super::{Mlp, Product};
use crate::config::Experts;

/// A mixture of experts: its rule, its experts, what chooses them, and what all tokens have.
#[derive(Clone, Debug)]
pub struct Moe<'a> {
    pub(super) rule: Experts,
    pub(super) router: Option<Product<'a>>,
    pub(super) router_bias: Vec<f32>,
    pub(super) first: usize,
    pub(super) experts: Vec<Mlp<'a>>,
    pub(super) shared: Option<Mlp<'a>>,
    pub(super) shared_gate: Option<Product<'a>>,
}

impl<'a> Moe<'a> {
    /// What chooses, how weights are made, and what they multiply.
    #[must_use]
    pub fn rule(&self) -> &Experts {
        &self.rule
    }

    /// Makes logits, `[E, H]`, if the checkpoint has it.
    #[must_use]
    pub fn router(&self) -> Option<&Product<'a>> {
        self.router.as_ref()
    }

    /// `[E]`: what is added to an expert's sigmoid before it is chosen; empty, where there is none.
    #[must_use]
    pub fn router_bias(&self) -> &[f32] {
        &self.router_bias
    }

    /// All, or those of [`Moe::range`].
    #[must_use]
    pub fn experts(&self) -> &[Mlp<'a>] {
        &self.experts
    }

    /// Which of the model's experts these are.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.first..self.first + self.experts.len()
    }

    /// What all tokens have.
    #[must_use]
    pub fn shared(&self) -> Option<&Mlp<'a>> {
        self.shared.as_ref()
    }

    /// `[1, H]`: the sigmoid of its product weighs the shared expert's row.
    #[must_use]
    pub fn shared_gate(&self) -> Option<&Product<'a>> {
        self.shared_gate.as_ref()
    }

    /// Some of the experts: what a device of several has. The results of all are added; the shared expert goes with the first.
    ///
    /// # Errors
    /// Data, if they are not there.
    pub fn some_experts(self, range: Range<usize>) -> Result<Self> {
        let all = self.range();
        if range.start < all.start || range.start > range.end || range.end > all.end {
            let (from, to) = (range.start, range.end);
            return Err(Error::data(format!("experts {from} to {to}: there are {} to {}", all.start, all.end)));
        }
        let has_shared = range.start == 0;
        Ok(Self {
            first: range.start,
            experts: self.experts[range.start - all.start..range.end - all.start].to_vec(),
            shared: self.shared.filter(|_| has_shared),
            shared_gate: self.shared_gate.filter(|_| has_shared),
            ..self
        })
    }

    /// A part of every expert's I, and of the shared expert's, `part` of `parts`.
    ///
    /// # Errors
    /// Data, if that is no whole number of blocks.
    pub fn some_intermediate(self, part: usize, parts: usize) -> Result<Self> {
        let of = |mlp: Mlp<'a>| {
            let size = mlp.intermediate_size();
            if parts == 0 || part >= parts || !size.is_multiple_of(parts) {
                return Err(Error::data(format!("part {part} of {parts} of I = {size}: no whole number")));
            }
            let own = size / parts;
            mlp.some_intermediate(part * own..(part + 1) * own)
        };
        Ok(Self {
            experts: self.experts.into_iter().map(of).collect::<Result<_>>()?,
            shared: self.shared.map(of).transpose()?,
            ..self
        })
    }
}
