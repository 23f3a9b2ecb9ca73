//! Weights of checkpoints made NVFP4, once and for all.

use super::Quantise;
use crate::error::Result;
use crate::format::Format;

/// Which of the kernels that make weights `[N, K]` in f16, bf16 or f32 NVFP4: one serves every N and K.
///
/// They compute, bit for bit, what `warpsmith-checkpoint` computes on the host: codes `[N, K/2]`, linear e4m3 scales `[N, K/16]`
/// and, for each row, the sums of squares of its values, of its errors and of the plain rule's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct QuantiseWeights {
    x: Format,
    is_searched: bool,
    is_divided: bool,
}

impl QuantiseWeights {
    /// From values in this format, by the plain rule; a reader multiplies scales by the factor.
    pub fn new(x: Format) -> Self {
        Self { x, is_searched: false, is_divided: false }
    }

    /// Each block has the scale of the least squared error, of those near the plain one.
    pub fn searched(mut self) -> Self {
        self.is_searched = true;
        self
    }

    /// A reader divides scales by the factor's reciprocal.
    pub fn divided(mut self) -> Self {
        self.is_divided = true;
        self
    }

    /// All twelve there are.
    pub fn all() -> impl Iterator<Item = Self> {
        let all = [Format::F16, Format::Bf16, Format::F32].map(Self::new);
        let all = all.into_iter().flat_map(|of| [of, of.searched()]);
        all.flat_map(|of| [of, of.divided()])
    }

    /// The format of what is quantised.
    pub fn x_format(&self) -> Format {
        self.x
    }

    /// Whether scales are searched for.
    #[must_use]
    pub fn is_searched(&self) -> bool {
        self.is_searched
    }

    /// Whether a reader divides by what is stored.
    #[must_use]
    pub fn is_divided(&self) -> bool {
        self.is_divided
    }

    /// The word for the rule.
    pub(crate) fn rule(&self) -> &'static str {
        if self.is_searched { "search" } else { "largest" }
    }

    /// The word for what a reader does.
    pub(crate) fn stored(&self) -> &'static str {
        if self.is_divided { "divide" } else { "multiply" }
    }

    /// The kernel's symbol, such as `quantise_weights_bf16_search_multiply`.
    #[must_use]
    pub fn symbol(&self) -> String {
        format!("quantise_weights_{}_{}_{}", self.x, self.rule(), self.stored())
    }

    /// # Errors
    /// Unsupported, if the values are in another format.
    pub(crate) fn check(&self) -> Result<()> {
        Quantise::check_x(self.x)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_has_a_symbol_of_its_own_and_no_other_format_is_taken() {
        assert!(QuantiseWeights::all().all(|of| of.check().is_ok()));
        let symbols: BTreeSet<_> = QuantiseWeights::all().map(|of| of.symbol()).collect();
        assert_eq!(symbols.len(), 12);
        assert!(symbols.contains("quantise_weights_bf16_search_divide"));
        let refusal = QuantiseWeights::new(Format::E4m3).check().unwrap_err();
        assert!(refusal.is_unsupported() && refusal.to_string().ends_with("not e4m3"), "{refusal}");
    }
}
