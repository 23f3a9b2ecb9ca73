//! What is done to a product, or to the two of a dual GEMM, before it is rounded.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::spelling::prefixed;

/// The function applied to a product, or to the gate product of a dual GEMM, where some also change what it is multiplied
/// with, the up product.
///
/// # Spelling
/// Its word; behind `silu_clamp` its limit: `silu_clamp7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// silu(x) = x / (1 + e^(−x)) (Elfwing et al. 2017; also called swish).
    Silu,
    /// silu(min(gate, L)) · clamp(up, −L, L): a limit L for both products, before anything is done to them.
    SiluClamp(u32),
    /// gelu(x) ≈ x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³))) (Hendrycks & Gimpel 2016, tanh form).
    GeluTanh,
    /// gelu(x) = x/2 · (1 + erf(x/√2)) (Hendrycks & Gimpel 2016).
    Gelu,
    /// g · σ(1.702·g) · (u + 1), g = min(gate, 7), u = clamp(up, −7, 7): what gpt-oss has.
    SwigluOai,
    /// relu²(x) = max(x, 0)² (So et al. 2021).
    Relu2,
    /// x itself; of a dual GEMM the product of the two products.
    None,
}

impl Activation {
    /// The largest limit of [`Activation::SiluClamp`]; the smallest is 1.
    pub const LIMIT_MAX: u32 = 65_504;

    /// One of each, in the order of the documentation, with the limit 7 where there is one to choose.
    pub const ALL: &'static [Activation] = &[
        Activation::Silu,
        Activation::SiluClamp(7),
        Activation::GeluTanh,
        Activation::Gelu,
        Activation::SwigluOai,
        Activation::Relu2,
        Activation::None,
    ];

    /// One of each that there is for the gate of a dual GEMM.
    pub const GATED: &'static [Activation] = &[
        Activation::Silu,
        Activation::SiluClamp(7),
        Activation::GeluTanh,
        Activation::Gelu,
        Activation::SwigluOai,
        Activation::None,
    ];

    /// One of each that there is for the product of a GEMM.
    pub const UNGATED: &'static [Activation] =
        &[Activation::Silu, Activation::GeluTanh, Activation::Gelu, Activation::Relu2, Activation::None];

    /// The name of what implements it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Activation::Silu => "silu",
            Activation::SiluClamp(_) => "silu_clamp",
            Activation::GeluTanh => "gelu_tanh",
            Activation::Gelu => "gelu",
            Activation::SwigluOai => "swiglu_oai",
            Activation::Relu2 => "relu2",
            Activation::None => "none",
        }
    }

    /// What it clamps products at, if it clamps them.
    #[must_use]
    pub fn limit(self) -> Option<u32> {
        match self {
            Activation::SiluClamp(limit) => Some(limit),
            Activation::SwigluOai => Some(7),
            _ => None,
        }
    }

    /// How they are spelt, in one line.
    pub(crate) fn spellings(of: &[Self]) -> String {
        let spelling = |activation: &Self| match activation {
            Activation::SiluClamp(_) => "silu_clampL",
            other => other.word(),
        };
        of.iter().map(spelling).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Activation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Activation::SiluClamp(limit) => f.pad(&format!("{}{limit}", self.word())),
            other => f.pad(other.word()),
        }
    }
}

impl FromStr for Activation {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let limited = Activation::SiluClamp(0).word();
        if let Some(limit) = prefixed(text, limited) {
            return Ok(Activation::SiluClamp(limit));
        }
        let known = Self::ALL.iter().find(|known| known.word() == text && text != limited);
        known.copied().ok_or_else(|| {
            Error::parse(format!("unknown activation `{text}`: expected {}", Self::spellings(Self::ALL)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spelling_is_read_as_it_is_written() {
        let limits = [0, 1, 7, 10, 65_504, u32::MAX].map(Activation::SiluClamp);
        for activation in Activation::ALL.iter().copied().chain(limits) {
            assert_eq!(activation.to_string().parse::<Activation>().unwrap(), activation);
        }
        assert_eq!(format!("[{:>12}]", Activation::SiluClamp(10)), "[silu_clamp10]");
        for text in ["silu_clamp", "silu_clamp07", "silu_clamp7.0", "silu_clamp-7", "swiglu_oai7", "relu", "", "Silu"] {
            let error = text.parse::<Activation>().unwrap_err();
            assert!(error.is_parse() && error.to_string().contains("silu, silu_clampL, gelu_tanh"), "{error}");
        }
    }

    #[test]
    fn every_activation_goes_with_some_operation() {
        let is_known = |of: &[Activation], activation| of.contains(activation);
        for activation in Activation::ALL {
            assert!(is_known(Activation::GATED, activation) || is_known(Activation::UNGATED, activation));
        }
        let all = [Activation::GATED, Activation::UNGATED].concat();
        assert!(all.iter().all(|activation| is_known(Activation::ALL, activation)));
    }
}
