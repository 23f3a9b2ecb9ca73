//! Kernels without matrix instructions: what each computes, one small struct a kind.

mod prepare;
mod route;

use crate::error::Result;

pub use prepare::Preparation;
pub use route::{Route, RouteLists, Scoring};

/// One of them. All are rendered, cached, loaded and launched alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Simt {
    /// Repacks weights.
    Prepare(Preparation),
    /// Chooses experts and sorts rows by them.
    Route(Route),
}

impl Simt {
    /// What its kernels' symbols begin with.
    #[must_use]
    pub fn symbol(&self) -> String {
        match self {
            Self::Prepare(preparation) => preparation.symbol(),
            Self::Route(route) => symbol_of(route),
        }
    }

    /// # Errors
    /// Unsupported, if no kernel can be made of it.
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Self::Prepare(_) => Ok(()),
            Self::Route(route) => route.check(),
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

/// A spelling as a symbol.
fn symbol_of(spelling: &impl ToString) -> String {
    spelling.to_string().replace(|c: char| !c.is_ascii_alphanumeric(), "_")
}
