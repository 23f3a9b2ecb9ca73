//! Decisions for one problem, as intervals of M that do not overlap.

use super::choice::Choice;
use super::entry::Entry;
use crate::spec::Spec;

/// A decision whose variant is legal, with the choice that it leads to.
pub(super) struct Decision<'a> {
    pub(super) entry: &'a Entry,
    pub(super) choice: Choice,
    /// SMs that the device of the decision has more or fewer.
    pub(super) distance: u32,
}

impl Decision<'_> {
    /// The least of those for an M decides there: of the device most like this one in SMs, and of its decisions the one
    /// for the fewest M, which was made for this M more than the others were; then the better evidence.
    fn compare(&self, other: &Self) -> std::cmp::Ordering {
        let width = |entry: &Entry| entry.m().end() - entry.m().start();
        let by_place = (self.distance, width(self.entry)).cmp(&(other.distance, width(other.entry)));
        by_place.then_with(|| other.entry.compare(self.entry))
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
    pub(super) fn new(decisions: &[Decision<'_>]) -> Self {
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

    /// Every M behind which another decision may begin: the last before each interval, and the last of each.
    pub(super) fn lasts(&self) -> impl Iterator<Item = u32> {
        self.0.iter().flat_map(|interval| [interval.from - 1, interval.to]).filter(|last| *last > 0)
    }

    /// What was chosen, in the order of M.
    pub(super) fn specs(&self) -> impl Iterator<Item = &Spec> {
        self.0.iter().map(|interval| interval.choice.spec())
    }
}
