//! The whole range of M of a problem, split where the choice changes.

use super::cells;
use super::choice::{Choice, Origin};
use super::intervals::Intervals;
use crate::error::{Error, Result};
use crate::spec::{Arch, Numerics, Problem, Spec};

/// Rows for which one choice holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The fewest rows, of all groups together.
    pub first: u32,
    /// The most.
    pub last: u32,
    /// The choice for all of them.
    pub choice: Choice,
}

/// The whole range of M of a problem: ascending intervals without gaps, from one row to the problem's stated limit, or
/// else to [`Problem::M_MAX`]. Nothing else is ever chosen for it: the kernels of its intervals are all that it can need.
///
/// Where nothing was measured, one choice is made for each cell of a fixed grid, for the cell's upper end. Cells end at 1, 2, 4,
/// every multiple of 8 up to 64 rows, of 16 up to 128, four times an octave up to 512, twice an octave up to 8192, once up to
/// 131,072, and every four octaves beyond. All cells together have at most ten kernels, those that are predicted to lose least
/// to the best one of each cell, where much in one cell counts more than little in many, a cell with few rows as much as
/// several with many, and one that ends at a power of two an octave more, as engines pad to these: few kernels are worth more
/// than the last per cent of an estimate. What was measured cuts the grid at its own intervals, and its kernels stand in for
/// others, too; beside them there is a part of the ten, as large as the cells count in which rows are left.
///
/// ```
/// use warpsmith::pick::Picker;
/// use warpsmith::spec::{Activation, Arch, Problem};
/// let picker = Picker::new("NVIDIA H200", &Arch::H200);
/// let schedule = picker.schedule(&Problem::dual_gemm(Activation::Silu).n(4096).k(7168).prepared().m_up_to(8192))?;
/// for interval in schedule.intervals() {
///     println!("{} to {}: {}", interval.first, interval.last, interval.choice.spec().variant());
/// }
/// assert_eq!(schedule.last(), 8192);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    intervals: Vec<Interval>,
    /// The last row of each: what a look-up reads.
    lasts: Vec<u32>,
    /// Why there is no choice for more rows.
    ends: Option<String>,
}

/// What the choices of a problem come from.
pub(super) struct Sources<'a> {
    pub(super) problem: &'a Problem,
    pub(super) arch: &'a Arch,
    pub(super) class: Option<&'a Numerics>,
    /// What was measured, the surer first.
    pub(super) measured: &'a [Intervals],
}

impl Schedule {
    /// One choice for all rows.
    pub(super) fn constant(choice: Choice) -> Self {
        Self::from_intervals(vec![Interval { first: 1, last: Problem::M_MAX, choice }], None)
    }

    /// Up to [`Problem::M_MAX`], or to where nothing is legal any more.
    ///
    /// # Errors
    /// Unsupported, if nothing is legal even for the fewest rows.
    pub(super) fn new(sources: &Sources<'_>) -> Result<Self> {
        let segments = segments(sources);
        let mut open: Vec<u32> =
            segments.iter().filter(|segment| segment.measured.is_none()).map(|segment| segment.cell).collect();
        open.dedup();
        let given = sources.measured.iter().flat_map(|measured| measured.specs());
        let given: Vec<Spec> = given.copied().collect();
        let (choices, error) = cells::choices(sources.problem, &open, sources.arch, sources.class, &given);

        let mut intervals: Vec<Interval> = Vec::new();
        for Segment { first, last, cell, measured } in segments {
            let chosen = || open.binary_search(&cell).ok().and_then(|index| choices.get(index)).copied();
            // Behind a gap there is nothing.
            let Some(choice) = measured.or_else(chosen) else { break };
            match intervals.last_mut() {
                Some(before) if is_same(&before.choice, &choice) => *before = Interval { last, choice, ..*before },
                _ => intervals.push(Interval { first, last, choice }),
            }
        }
        match error {
            Some(error) if intervals.is_empty() => Err(error),
            error => Ok(Self::from_intervals(intervals, error.map(|error| error.to_string()))),
        }
    }

    fn from_intervals(intervals: Vec<Interval>, ends: Option<String>) -> Self {
        let lasts = intervals.iter().map(|interval| interval.last).collect();
        Self { intervals, lasts, ends }
    }

    /// The same up to `limit` rows.
    ///
    /// # Errors
    /// Unsupported, if it ends before.
    pub(super) fn up_to(&self, limit: u32) -> Result<Self> {
        self.reach(limit)?;
        let within = self.intervals.iter().take_while(|interval| interval.first <= limit);
        let cut = within.map(|interval| Interval { last: interval.last.min(limit), ..*interval });
        Ok(Self::from_intervals(cut.collect(), None))
    }

    /// Ascending, without gaps, from one row on.
    #[must_use]
    pub fn intervals(&self) -> &[Interval] {
        &self.intervals
    }

    /// The most rows that there is a choice for.
    #[must_use]
    pub fn last(&self) -> u32 {
        self.lasts.last().copied().unwrap_or(0)
    }

    /// The index of the interval of `m` rows; 0 rows are looked up as one, rows beyond the last as the last.
    #[must_use]
    pub fn index(&self, m: u32) -> usize {
        self.lasts.partition_point(|last| *last < m).min(self.lasts.len() - 1)
    }

    /// The choice for `m` rows; 0 rows are looked up as one, rows beyond the last as the last.
    #[must_use]
    pub fn at(&self, m: u32) -> &Choice {
        &self.intervals[self.index(m)].choice
    }

    /// Each of its kernels once, in the order of their first rows.
    pub fn specs(&self) -> impl Iterator<Item = &Spec> {
        let spec_of = |interval: &Interval| *interval.choice.spec();
        self.intervals.iter().enumerate().filter_map(move |(index, interval)| {
            let is_new = self.intervals[..index].iter().all(|before| spec_of(before) != spec_of(interval));
            is_new.then(|| interval.choice.spec())
        })
    }

    /// Refuses rows that nothing is legal for.
    ///
    /// # Errors
    /// Unsupported, if it ends before `m` rows.
    pub(super) fn reach(&self, m: u32) -> Result<()> {
        match &self.ends {
            Some(why) if m > self.last() => Err(Error::unsupported(why.clone())),
            _ => Ok(()),
        }
    }
}

/// Rows of one cell for which the measurements say one thing.
struct Segment {
    first: u32,
    last: u32,
    /// The upper end of the cell.
    cell: u32,
    measured: Option<Choice>,
}

fn segments(sources: &Sources<'_>) -> Vec<Segment> {
    let ends: Vec<u32> = cells::grid().collect();
    let measured = sources.measured.iter().flat_map(|measured| measured.lasts());
    let mut lasts: Vec<u32> = ends.iter().copied().chain(measured).collect();
    lasts.sort_unstable();
    lasts.dedup();
    let firsts = std::iter::once(1).chain(lasts.iter().map(|last| last + 1));
    firsts
        .zip(&lasts)
        .map(|(first, &last)| Segment {
            first,
            last,
            cell: ends[ends.partition_point(|end| *end < last)],
            measured: sources.measured.iter().find_map(|measured| measured.at(first)).copied(),
        })
        .collect()
}

/// Whether two choices for neighbouring rows are one: estimates for other rows are no other choice.
fn is_same(a: &Choice, b: &Choice) -> bool {
    let is_estimated = |choice: &Choice| matches!(choice.origin(), Origin::Heuristic | Origin::Fallback);
    a == b || (a.spec() == b.spec() && is_estimated(a) && is_estimated(b))
}
