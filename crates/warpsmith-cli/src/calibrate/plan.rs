//! What is measured of a problem: for each M what its line of the table needs, and then what else is worth a look.

use std::collections::HashSet;

use warpsmith::pick::Picker;
use warpsmith::spec::{Spec, Variant};

use super::args::Args;
use super::candidates;
use super::list::Item;
use super::record::Record;

/// Best ones of the file that are timed again beside new ones.
const KNOWN: usize = 5;

/// The first round of a problem, for each of its M.
#[derive(Debug, Default)]
pub struct Plan {
    /// Measured whatever the time.
    pub needed: Vec<Vec<Spec>>,
    /// Measured while there is time, the most telling first.
    pub more: Vec<Vec<Spec>>,
}

/// What the file had when the process began, for each M of a problem; nothing, if there was none.
#[derive(Default)]
pub struct Before {
    /// Every variant that it has a line of.
    seen: Vec<HashSet<Variant>>,
    best: Vec<Vec<Variant>>,
}

impl Before {
    pub fn of(item: &Item, record: &Record) -> Self {
        let problem = &item.problem;
        let ms = || item.rows.iter().map(|rows| rows.iter().sum());
        Self {
            seen: ms().map(|m| record.variants(problem, m)).collect(),
            best: ms().map(|m| record.best(problem, m, KNOWN)).collect(),
        }
    }

    /// The fewest lines that an M has.
    pub fn fewest(&self) -> usize {
        self.seen.iter().map(HashSet::len).min().unwrap_or(0)
    }
}

impl Plan {
    /// Of the problem at a place in the list. What the file has is left out, but for its best where there is something new.
    pub fn new(args: &Args, picker: &Picker, at: usize, item: &Item, before: &Before) -> Self {
        let (problem, arch) = (&item.problem, picker.arch());
        // One seed for all M, so that they share kernels.
        let mut rng = fastrand::Rng::with_seed(args.seed << 16 | at as u64);
        let sample = candidates::sample(problem, arch, args.candidates, &mut rng);
        let mut plan = Self::default();
        for (of, rows) in item.rows.iter().enumerate() {
            let (seen, best) = (before.seen.get(of), before.best.get(of));
            let m = rows.iter().sum();
            let ranked = if args.also_rank { candidates::ranked(problem, m, picker) } else { Vec::new() };
            let more = candidates::more(problem, m, arch, args.candidates, &ranked, &sample, &mut rng.clone());
            let [mut needed, more] = [ranked, more].map(|mut specs| {
                specs.retain(|spec| !seen.is_some_and(|seen| seen.contains(spec.variant())));
                specs
            });
            if !(needed.is_empty() && more.is_empty() && args.rounds == 0) {
                needed
                    .extend(best.into_iter().flatten().filter_map(|variant| Spec::check(problem, variant, arch).ok()));
            }
            plan.needed.push(needed);
            plan.more.push(more);
        }
        plan
    }

    /// Nothing is measured of the problem.
    pub fn is_empty(&self) -> bool {
        self.needed.iter().chain(&self.more).all(Vec::is_empty)
    }

    /// Each kernel once.
    pub fn kernels(&self) -> HashSet<&Spec> {
        self.needed.iter().chain(&self.more).flatten().collect()
    }
}
