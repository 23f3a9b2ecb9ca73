//! Every kernel that a manifest can ever need, found without a GPU and without a compiler.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::engine::manifest::Manifest;
use crate::engine::problem_kernels::fallback;
use crate::engine::rows::Rows;
use crate::error::{Error, Result};
use crate::pick::{Picker, Schedule};
use crate::simt::{Preparation, Simt};
use crate::spec::{Problem, Spec};

/// The closed world of a manifest: the kernels that a [`Picker`] chooses for one of its problems at one of its M, those that
/// prepare weights for them, and those of its routers and combiners. Nothing else is ever chosen there, since each problem's [`Schedule`] is all there is.
///
/// ```
/// use warpsmith::engine::Manifest;
/// use warpsmith::internal::engine::KernelSet;
/// use warpsmith::pick::Picker;
/// use warpsmith::spec::{Activation, Arch, Problem};
/// let problem = Problem::dual_gemm(Activation::Silu).n(4096).k(7168).prepared();
/// let manifest = Manifest::new().with(&problem, &"1..=8192".parse()?);
/// let picker = Picker::new("NVIDIA H200", &Arch::H200);
/// let set = KernelSet::new(&picker, &manifest);
/// assert!(set.specs().any(|spec| spec == picker.choose(&problem, 77).unwrap().spec()));
/// assert_eq!(set.simts().count(), 1);
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[derive(Debug)]
pub struct KernelSet {
    problems: Vec<Scheduled>,
    specs: Vec<Spec>,
    simts: Vec<Simt>,
    refused: Vec<(Problem, Error)>,
}

/// A problem, its rows, and its choices.
#[derive(Debug)]
struct Scheduled {
    problem: Problem,
    rows: Rows,
    schedule: Arc<Schedule>,
}

/// A kernel of the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
// Sets are small.
#[allow(clippy::large_enum_variant)]
pub(super) enum Needed {
    Spec(Spec),
    Simt(Simt),
}

impl Needed {
    pub fn name(&self) -> String {
        match self {
            Self::Spec(spec) => spec.name(),
            Self::Simt(simt) => simt.symbol(),
        }
    }
}

impl KernelSet {
    /// What `picker` chooses for `manifest`. Problems that it refuses are left out: see [`KernelSet::refused`].
    #[must_use]
    pub fn new(picker: &Picker, manifest: &Manifest) -> Self {
        let mut set = Self { problems: Vec::new(), specs: Vec::new(), simts: Vec::new(), refused: Vec::new() };
        for (problem, rows) in manifest.problems() {
            if let Err(error) = set.add(picker, problem, rows) {
                set.refused.push((*problem, error));
            }
        }
        set.simts.extend(manifest.simts());
        set
    }

    fn add(&mut self, picker: &Picker, problem: &Problem, rows: &Rows) -> Result<()> {
        let schedule = picker.schedule(problem)?;
        // The error for rows that the schedule does not reach.
        if let Some(most) = rows.ranges().map(|range| *range.end()).max() {
            picker.choose(problem, most)?;
        }
        if problem.is_prepared() {
            let preparation = Preparation::new(&problem.prepared_layout()?, problem.scale_layout()).into();
            if !self.simts.contains(&preparation) {
                self.simts.push(preparation);
            }
        }
        for interval in schedule.intervals() {
            let spec = interval.choice.spec();
            if rows.meets(interval.first..=interval.last) && !self.specs.contains(spec) {
                self.specs.push(*spec);
            }
        }
        self.problems.push(Scheduled { problem: *problem, rows: rows.clone(), schedule });
        Ok(())
    }

    /// The kernels that compute, each once, by problem and ascending rows.
    pub fn specs(&self) -> impl Iterator<Item = &Spec> {
        self.specs.iter()
    }

    /// The kernels without matrix instructions, each once: those that prepare weights, routers, combiners.
    pub fn simts(&self) -> impl Iterator<Item = Simt> {
        self.simts.iter().copied()
    }

    /// How many kernels there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.specs.len() + self.simts.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Problems that there is no kernel for, and why.
    pub fn refused(&self) -> &[(Problem, Error)] {
        &self.refused
    }

    /// Problems that there are kernels for.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter().map(|scheduled| &scheduled.problem)
    }

    /// What a kernel is for: a problem, and rows. Routers and combiners are for themselves.
    pub(super) fn serves(&self, needed: &Needed) -> Vec<(Problem, Vec<RangeInclusive<u32>>)> {
        let of = |scheduled: &Scheduled| match needed {
            Needed::Spec(spec) => scheduled.intervals(spec).map(|(_, range)| range).collect(),
            Needed::Simt(simt) => {
                let layout =
                    scheduled.problem.is_prepared().then(|| scheduled.problem.prepared_layout().ok()).flatten();
                let own = layout.map(|layout| Preparation::new(&layout, scheduled.problem.scale_layout()).into());
                if own == Some(*simt) { scheduled.rows.ranges().collect() } else { Vec::new() }
            }
        };
        let all = self.problems.iter().map(|scheduled| (scheduled.problem, of(scheduled)));
        all.filter(|(_, ranges)| !ranges.is_empty()).collect()
    }

    /// The kernel that serves in place of `spec`, if `is_there` knows one for all of its rows.
    pub(super) fn instead(&self, spec: &Spec, is_there: impl Fn(&Spec) -> bool) -> Option<Spec> {
        let scheduled = self.problems.iter().find(|scheduled| scheduled.problem == *spec.problem())?;
        let (index, range) = scheduled.intervals(spec).last()?;
        let choices = scheduled.schedule.intervals();
        let known = |other: usize| is_there(choices[other].choice.spec());
        fallback(&scheduled.schedule, index, *range.end(), known).map(|found| *choices[found].choice.spec())
    }
}

impl Scheduled {
    /// The intervals of a kernel that have some of the rows, with their indices.
    fn intervals(&self, spec: &Spec) -> impl Iterator<Item = (usize, RangeInclusive<u32>)> {
        let all = self.schedule.intervals().iter().enumerate();
        let own = all.filter(move |(_, interval)| interval.choice.spec() == spec);
        own.map(|(index, interval)| (index, interval.first..=interval.last))
            .filter(|(_, range)| self.rows.meets(range.clone()))
    }
}
