//! Which variant: for a problem and an M, one legal variant and the reason for it.

mod ladder;

use std::fmt;

use crate::error::Result;
use crate::spec::{Arch, Problem, Spec, Variant};

/// Where a choice comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// The caller named the variant.
    Pinned,
    /// The ladder of rules chose it; nothing was measured.
    Heuristic,
    /// Nothing better was legal: the baseline.
    Fallback,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Origin::Pinned => "pinned",
            Origin::Heuristic => "heuristic",
            Origin::Fallback => "fallback",
        })
    }
}

/// A variant, proven legal, with where it came from and the numbers behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    spec: Spec,
    origin: Origin,
    reason: String,
}

impl Choice {
    /// The caller's own variant.
    ///
    /// # Errors
    /// Unsupported, if it is not legal for this problem on this architecture.
    pub fn pinned(problem: &Problem, variant: &Variant, arch: &Arch) -> Result<Self> {
        let spec = Spec::new(problem, variant, arch)?;
        Ok(Self { spec, origin: Origin::Pinned, reason: "named by the caller".to_owned() })
    }

    /// What was chosen.
    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Where the choice came from.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The numbers behind it, in words.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

/// Chooses a variant for `m` rows (of all groups together). The same arguments always give the same choice.
///
/// # Errors
/// Unsupported, if no variant is legal: then the problem itself is not.
pub fn choose(problem: &Problem, m: u32, arch: &Arch) -> Result<Choice> {
    ladder::choose(problem, m, arch)
}
