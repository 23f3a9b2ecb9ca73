//! Which variant: for a problem and an M, one legal variant and the reason for it.
//!
//! A [`Picker`] knows a device by its model and SM count, holds what was measured (a [`Table`]) and what the caller wants
//! (pins, a [`Policy`]), and needs no device itself. The first of these that has something to say decides:
//!
//! ```text
//! pinned ▸ measured on this model of device ▸ measured on its architecture ▸ heuristic ▸ fallback
//! ```
//!
//! [`Picker::explain`] tells what was considered, what was refused and why the choice is what it is.

mod cells;
mod choice;
mod entry;
mod explain;
pub mod heuristic;
mod intervals;
mod picker;
mod policy;
pub mod rules;
mod schedule;
mod table;
mod untuned;

pub use choice::{Choice, Origin, Reason};
pub use entry::{Entry, Evidence, Measured};
pub use explain::{Candidate, Explanation, IgnoredDecision, RefusedBy, Term};
pub use picker::{Ignored, Picker, PickerBuilder};
pub use policy::Policy;
pub use schedule::{Interval, Schedule};
pub use table::{Change, Skipped, Table};

use crate::error::Result;
use crate::spec::{Arch, Problem};

/// Chooses a variant for `m` rows (of all groups together) where nothing was measured: heuristic, else fallback. The same
/// arguments always give the same choice.
///
/// # Errors
/// Those of [`Problem::check_for`]; unsupported, if no variant is legal on the architecture.
pub fn choose(problem: &Problem, m: u32, arch: &Arch) -> Result<Choice> {
    problem.check_for(m)?;
    untuned::choose(problem, m, arch, None)
}
