//! Which variant: for a problem and an M, one legal variant and the reason for it.

mod ladder;
mod mma;
mod wgmma;

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

/// The numbers behind a choice; printed as a clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The caller named it.
    Named,
    /// The ladder of rules led to it.
    Ladder {
        /// Blocks of its launch, all splits of K counted.
        blocks: u32,
        /// SMs of the device.
        sms: u32,
        /// Of the rows that its tiles have room for, how many per cent hold tokens.
        rows_percent: u32,
        /// Whether groups were taken to be equal, since their sizes are known only on the device.
        equal_groups: bool,
    },
    /// What the ladder led to is not legal, nor anything like it.
    NothingLegal {
        /// What it led to.
        wanted: Variant,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Named => f.write_str("named by the caller"),
            Reason::Ladder { blocks, sms, rows_percent, equal_groups } => {
                write!(f, "{blocks} blocks for {sms} SMs, {rows_percent} % of token rows used")?;
                if *equal_groups { f.write_str(" by equal groups") } else { Ok(()) }
            }
            Reason::NothingLegal { wanted } => write!(f, "nothing like {wanted} is legal"),
        }
    }
}

/// A variant, proven legal, with where it came from and the numbers behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    spec: Spec,
    reason: Reason,
}

impl Choice {
    /// The caller's own variant.
    ///
    /// # Errors
    /// Unsupported, if it is not legal for this problem on this architecture.
    pub fn pinned(problem: &Problem, variant: &Variant, arch: &Arch) -> Result<Self> {
        Ok(Self { spec: Spec::new(problem, variant, arch)?, reason: Reason::Named })
    }

    /// What was chosen.
    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Where the choice came from.
    #[must_use]
    pub fn origin(&self) -> Origin {
        match self.reason {
            Reason::Named => Origin::Pinned,
            Reason::Ladder { .. } => Origin::Heuristic,
            Reason::NothingLegal { .. } => Origin::Fallback,
        }
    }

    /// The numbers behind it.
    #[must_use]
    pub fn reason(&self) -> &Reason {
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
