//! Decisions for one problem, as intervals of M that do not overlap.

use std::ops::RangeInclusive;

use super::carried::Foreign;
use super::choice::{Choice, Origin};
use super::entry::Entry;
use crate::spec::{Arch, Numerics, Spec};

/// A decision whose variant is legal, with the choice that it leads to.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) entry: Entry,
    pub(super) choice: Choice,
    /// The device of the decision, as far as its name tells.
    pub(super) source: Option<Arch>,
    /// How many more or fewer SMs that has, and GB/s.
    pub(super) distance: (u32, u32),
}

impl Decision {
    /// One that leads to `choice` on `arch`.
    pub(super) fn new(entry: &Entry, choice: Choice, arch: &Arch) -> Self {
        let source = Arch::of_name(entry.device(), entry.sms(), entry.target());
        let speed = |source: &Arch| ((source.memory_bytes_per_s() - arch.memory_bytes_per_s()).abs() / 1e9) as u32;
        let distance = (entry.sms().abs_diff(arch.sms()), source.as_ref().map_or(u32::MAX, speed));
        Self { entry: entry.clone(), choice, source, distance }
    }

    /// Whether it is followed on `arch`, where choices are of `class`, if there is one: for its own problem on its own device
    /// it always is.
    pub(super) fn carries_over(&self, arch: &Arch, class: Option<&Numerics>) -> bool {
        if self.choice.origin() == Origin::Tuned {
            return true;
        }
        let Some(source) = &self.source else { return true };
        let (entry, spec) = (&self.entry, self.choice.spec());
        let gain = entry.evidence().measured.over_heuristic;
        Foreign { problem: entry.problem(), m: *entry.m().end(), spec, gain, source }.carries_over(arch, class)
    }

    /// The least of those for an M decides there: of the device most like this one, and of its decisions the one
    /// for the fewest M, which was made for this M more than the others were; then the better evidence.
    fn compare(&self, other: &Self) -> std::cmp::Ordering {
        let width = |entry: &Entry| entry.m().end() - entry.m().start();
        let by_place = (self.distance, width(&self.entry)).cmp(&(other.distance, width(&other.entry)));
        by_place.then_with(|| other.entry.compare(&self.entry))
    }
}

/// Sorted and apart.
#[derive(Debug, Default)]
pub(super) struct Intervals(Vec<Span>);

#[derive(Debug)]
struct Span {
    from: u32,
    to: u32,
    choice: Choice,
}

impl Intervals {
    /// At each M the decision that [`Decision::compare`] puts first.
    pub(super) fn new(decisions: &[Decision]) -> Self {
        let mut begins: Vec<u32> = decisions.iter().map(|decision| *decision.entry.m().start()).collect();
        begins.extend(decisions.iter().map(|decision| decision.entry.m().end() + 1));
        begins.sort_unstable();
        begins.dedup();
        let mut intervals: Vec<Span> = Vec::new();
        for pair in begins.windows(2) {
            let (from, to) = (pair[0], pair[1] - 1);
            let covering = decisions.iter().filter(|decision| decision.entry.m().contains(&from));
            let Some(best) = covering.min_by(|a, b| a.compare(b)) else { continue };
            match intervals.last_mut() {
                Some(last) if last.to + 1 == from && last.choice == best.choice => last.to = to,
                _ => intervals.push(Span { from, to, choice: best.choice }),
            }
        }
        Self(intervals)
    }

    /// The choice for `m` rows, if there is a decision for them.
    pub(super) fn at(&self, m: u32) -> Option<&Choice> {
        let behind = self.0.partition_point(|interval| interval.from <= m);
        let interval = self.0.get(behind.checked_sub(1)?)?;
        (m <= interval.to).then_some(&interval.choice)
    }

    /// Whether there is a decision for each of these.
    pub(super) fn cover(&self, rows: RangeInclusive<u32>) -> bool {
        let after = |next: u32, span: &Span| if span.from <= next { next.max(span.to + 1) } else { next };
        self.0.iter().fold(*rows.start(), after) > *rows.end()
    }

    /// Every M behind which another decision may begin: the last before each interval, and the last of each.
    pub(super) fn lasts(&self) -> impl Iterator<Item = u32> {
        self.0.iter().flat_map(|interval| [interval.from - 1, interval.to]).filter(|last| *last > 0)
    }

    /// What was chosen, in the order of M.
    pub(super) fn specs(&self) -> impl Iterator<Item = &Spec> {
        self.0.iter().map(|interval| interval.choice.spec())
    }
}
