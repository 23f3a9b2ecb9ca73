//! Which variant: for a problem and an M, one legal variant and the reason for it.
//!
//! A [`Picker`] knows a device by its model and SM count, holds what was measured (a [`Table`]) and what the caller wants
//! (pins, a [`Policy`]), and needs no device itself. The first of these that has something to say decides:
//!
//! ```text
//! pinned ▸ measured on this model of device ▸ measured there for a like problem ▸ measured on its architecture ▸ heuristic ▸
//! fallback
//! ```
//!
//! [`Picker::explain`] tells what was considered, what was refused and why the choice is what it is.

mod carried;
mod cells;
pub(crate) mod choice;
pub(crate) mod entry;
pub(crate) mod explain;
pub(crate) mod heuristic;
mod intervals;
pub(crate) mod picker;
mod policy;
pub(crate) mod rules;
pub(crate) mod schedule;
pub(crate) mod table;
mod untuned;

pub use choice::{Choice, Origin};
pub(crate) use entry::Entry;
pub use explain::Explanation;
pub use picker::{Picker, PickerBuilder};
pub use policy::Policy;
pub use schedule::Interval;
pub(crate) use schedule::Schedule;
pub use table::Table;

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
