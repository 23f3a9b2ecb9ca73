//! What was chosen, where it comes from, and the numbers behind it.

use std::fmt;

use super::entry::Measured;
use super::heuristic::Prediction;
use crate::error::Result;
use crate::spec::{Arch, Problem, Spec, Variant};
use crate::spelling::words;

/// Where a choice comes from, the surest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Origin {
    /// The caller named the variant.
    Pinned,
    /// It was measured on this model of device, with as many SMs.
    Tuned,
    /// It was measured on another device of the same architecture, or for a problem that differs in its activation, its bias or
    /// a format alone.
    Similar,
    /// The heuristic chose it; nothing was measured.
    Heuristic,
    /// Nothing better was legal: the baseline.
    Fallback,
}

words!(Origin, "origin", {
    Pinned => "pinned", Tuned => "tuned", Similar => "similar", Heuristic => "heuristic", Fallback => "fallback",
});

impl Origin {
    /// How much there is to go by, as a clause.
    #[must_use]
    pub fn confidence(self) -> &'static str {
        match self {
            Origin::Pinned => "named by the caller",
            Origin::Tuned => "measured on this model of device",
            Origin::Similar => "measured on another device of the same architecture, or for a like problem",
            Origin::Heuristic | Origin::Fallback => "nothing measured",
        }
    }
}

/// The numbers behind a choice; printed as a clause.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// The caller named it.
    Named,
    /// A line of the tuning table names it.
    Measured {
        /// What was measured.
        measured: Measured,
        /// The fewest rows that the line is for.
        from: u32,
        /// The most.
        to: u32,
        /// Whether that was on this model of device, with as many SMs; else on another of the same architecture.
        exact: bool,
        /// The problem that it was measured for, if that is a like one.
        like: Option<Problem>,
    },
    /// The heuristic's cost model.
    Predicted {
        /// The rows that the prediction is for, of all groups together.
        m: u32,
        /// What the variant is predicted to take, and what that is made of.
        prediction: Prediction,
    },
    /// No other variant is legal.
    NothingElse,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Named => f.write_str("named by the caller"),
            Reason::Measured { measured, from, to, exact, like } => {
                write!(f, "{measured}, measured for {from} to {to} rows ")?;
                like.iter().try_for_each(|like| write!(f, "of {like} "))?;
                f.write_str("on ")?;
                f.write_str(if *exact { "this model of device" } else { "another device of the same architecture" })
            }
            Reason::Predicted { m, prediction } => write!(f, "predicted for {m} rows: {prediction}"),
            Reason::NothingElse => f.write_str("no other variant is legal"),
        }
    }
}

/// A variant, proven legal, with where it came from and the numbers behind it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    spec: Spec,
    reason: Reason,
}

impl Choice {
    pub(super) fn new(spec: Spec, reason: Reason) -> Self {
        Self { spec, reason }
    }

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
            Reason::Measured { exact: true, like: None, .. } => Origin::Tuned,
            Reason::Measured { .. } => Origin::Similar,
            Reason::Predicted { .. } => Origin::Heuristic,
            Reason::NothingElse => Origin::Fallback,
        }
    }

    /// The numbers behind it.
    #[must_use]
    pub fn reason(&self) -> &Reason {
        &self.reason
    }
}
