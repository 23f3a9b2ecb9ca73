//! Kernels without matrix instructions, and one that has such but no variants ([`Experts`]): what each computes, one small struct a kind.

mod combine;
mod experts;
mod prepare;
mod quantise;
mod quantise_weights;
mod route;

use crate::error::Result;

pub use combine::Combine;
pub use experts::Experts;
pub use prepare::Preparation;
pub use quantise::Quantise;
pub use quantise_weights::QuantiseWeights;
pub use route::{Route, RouteLists, Scoring};

/// Blocks of a cluster that every device can run whose architecture has clusters.
pub(crate) const PORTABLE_CLUSTER: u32 = 8;

/// One of them. All are rendered, cached, loaded and launched alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Simt {
    /// Repacks weights.
    Prepare(Preparation),
    /// Chooses experts and sorts rows by them.
    Route(Route),
    /// Adds up the rows of a token's experts.
    Combine(Combine),
    /// Does all of a mixture of experts behind its router, for few tokens.
    Experts(Experts),
    /// Makes values NVFP4.
    Quantise(Quantise),
    /// Makes weights of checkpoints NVFP4.
    QuantiseWeights(QuantiseWeights),
}

impl Simt {
    /// What its kernels' symbols begin with.
    #[must_use]
    pub fn symbol(&self) -> String {
        match self {
            Self::Prepare(preparation) => preparation.symbol(),
            Self::Route(route) => symbol_of(route),
            Self::Combine(combine) => symbol_of(combine),
            Self::Experts(experts) => symbol_of(experts),
            Self::Quantise(quantise) => symbol_of(quantise),
            Self::QuantiseWeights(weights) => weights.symbol(),
        }
    }

    /// Bytes of dynamic shared memory of a block.
    pub(crate) fn shared_bytes(&self) -> u32 {
        match self {
            Self::Experts(experts) => experts.tile().map_or(0, |tile| tile.shared_bytes),
            _ => 0,
        }
    }

    /// Whether its launches may have shared memory that only keeps their blocks apart.
    pub(crate) fn keeps_blocks_apart(&self) -> bool {
        matches!(self, Self::Quantise(_))
    }

    /// # Errors
    /// Unsupported, if no kernel can be made of it.
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Self::Prepare(_) => Ok(()),
            Self::Route(route) => route.check(),
            Self::Combine(combine) => combine.check(),
            Self::Experts(experts) => experts.check(),
            Self::Quantise(quantise) => quantise.check(),
            Self::QuantiseWeights(weights) => weights.check(),
        }
    }
}

impl From<Preparation> for Simt {
    fn from(preparation: Preparation) -> Self {
        Self::Prepare(preparation)
    }
}

impl From<Route> for Simt {
    fn from(route: Route) -> Self {
        Self::Route(route)
    }
}

impl From<Combine> for Simt {
    fn from(combine: Combine) -> Self {
        Self::Combine(combine)
    }
}

impl From<Experts> for Simt {
    fn from(experts: Experts) -> Self {
        Self::Experts(experts)
    }
}

impl From<Quantise> for Simt {
    fn from(quantise: Quantise) -> Self {
        Self::Quantise(quantise)
    }
}

impl From<QuantiseWeights> for Simt {
    fn from(weights: QuantiseWeights) -> Self {
        Self::QuantiseWeights(weights)
    }
}

/// A spelling as a symbol.
fn symbol_of(spelling: &impl ToString) -> String {
    spelling.to_string().replace(|c: char| !c.is_ascii_alphanumeric(), "_")
}
