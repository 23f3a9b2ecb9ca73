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

use crate::error::{Error, Result};
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

/// As [`choose`], for rows of each group that are known: one number if there are no groups.
///
/// ```
/// use warpsmith::pick;
/// use warpsmith::spec::{Activation, Arch, Problem};
/// let problem = Problem::dual_gemm(Activation::Silu).n(768).k(2048).grouped(4).prepared();
/// let choice = pick::choose_for(&problem, &[0, 0, 90, 6], &Arch::H200)?;
/// println!("{}", choice.reason());
/// # Ok::<(), warpsmith::Error>(())
/// ```
///
/// # Errors
/// As [`choose`]; data, if there are not as many numbers as groups.
pub fn choose_for(problem: &Problem, rows: &[u32], arch: &Arch) -> Result<Choice> {
    let m = rows.iter().map(|rows| u64::from(*rows)).sum::<u64>();
    problem.check_for(u32::try_from(m).unwrap_or(u32::MAX))?;
    let groups = problem.groups().unwrap_or(1) as usize;
    if rows.len() != groups {
        return Err(Error::data(format!("rows of {} groups given, {problem} has {groups}", rows.len())));
    }
    untuned::choose_for(problem, &problem.load_of(rows), arch, None)
}
