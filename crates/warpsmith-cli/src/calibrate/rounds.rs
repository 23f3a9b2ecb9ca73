//! Rounds of timings in turn, brought to one clock.
//!
//! What is timed in turn shares a card and its temperature; rounds differ by a tenth. So times of two rounds are compared by the
//! variants that both have.

use std::collections::BTreeMap;

/// Rounds of one problem and M, as they come in a file.
#[derive(Debug, Default)]
pub struct Rounds {
    rounds: Vec<BTreeMap<String, f64>>,
    /// Something else came since the last timing.
    is_over: bool,
}

impl Rounds {
    /// A timing of `variant`; of the next round if the last one has it.
    pub fn add(&mut self, variant: &str, us: f64) {
        let is_new = self.is_over || self.rounds.last().is_none_or(|round| round.contains_key(variant));
        if is_new {
            self.rounds.push(BTreeMap::new());
        }
        self.is_over = false;
        if let Some(round) = self.rounds.last_mut() {
            round.insert(variant.to_owned(), us);
        }
    }

    /// What comes next is of another round.
    pub fn end(&mut self) {
        self.is_over = true;
    }

    /// The time of each variant on the clock of the round that has most of them: the median of its rounds, each scaled by the
    /// median of what the variants say that it shares with those before, the one with most of them first. A round that shares
    /// none is taken as it is.
    pub fn on_one_clock(mut self) -> BTreeMap<String, f64> {
        let mut known: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        while !self.rounds.is_empty() {
            let shared = |round: &BTreeMap<String, f64>| {
                let common = round.keys().filter(|variant| known.contains_key(*variant)).count();
                (common, round.len())
            };
            let next = (0..self.rounds.len()).rev().max_by_key(|at| shared(&self.rounds[*at])).unwrap_or_default();
            let round = self.rounds.remove(next);
            let ratios = round.iter().filter_map(|(variant, us)| Some(median(known.get(variant)?.clone())? / us));
            let scale = median(ratios.collect()).unwrap_or(1.0);
            for (variant, us) in round {
                known.entry(variant).or_default().push(us * scale);
            }
        }
        known.into_iter().filter_map(|(variant, times)| Some((variant, median(times)?))).collect()
    }
}

/// The lower one of two in the middle; none of nothing.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(all: &[&[(&str, f64)]]) -> Vec<(String, f64)> {
        let mut rounds = Rounds::default();
        for round in all {
            round.iter().for_each(|(variant, us)| rounds.add(variant, *us));
            rounds.end();
        }
        rounds.on_one_clock().into_iter().collect()
    }

    fn times(all: &[(&str, f64)]) -> Vec<(String, f64)> {
        all.iter().map(|(variant, us)| ((*variant).to_owned(), *us)).collect()
    }

    #[test]
    fn a_hot_round_says_nothing_against_what_only_it_has() {
        let cool: &[_] = &[("a", 10.0), ("b", 12.0), ("c", 14.0)];
        let hot: &[_] = &[("a", 11.0), ("b", 13.2), ("d", 10.45)];
        let expected = times(&[("a", 10.0), ("b", 12.0), ("c", 14.0), ("d", 9.5)]);
        for all in [[cool, hot], [hot, cool]] {
            let found = rounds(&all);
            let clock = found[0].1 / 10.0;
            for ((variant, us), (same, wanted)) in found.iter().zip(&expected) {
                assert!(variant == same && (us / clock - wanted).abs() < 1e-9, "{variant}: {us}, {wanted}");
            }
        }
    }

    #[test]
    fn rounds_are_told_apart() {
        let mut all = Rounds::default();
        for (variant, us) in [("a", 1.0), ("b", 2.0), ("a", 2.0), ("c", 2.0)] {
            all.add(variant, us);
        }
        assert_eq!(all.rounds.len(), 2);
        all.end();
        all.add("d", 5.0);
        assert_eq!(all.rounds.len(), 3);
        // The second is at half the first's clock; the third has nothing in common.
        let found: Vec<(String, f64)> = all.on_one_clock().into_iter().collect();
        assert_eq!(found.len(), 4);
        let of = |wanted: &str| found.iter().find(|(variant, _)| variant == wanted).unwrap().1;
        assert_eq!((of("b") / of("a"), of("c") / of("a"), of("d")), (2.0, 1.0, 5.0));
    }

    #[test]
    fn one_round_is_what_it_is() {
        assert_eq!(rounds(&[&[("a", 3.0), ("b", 4.0)]]), times(&[("a", 3.0), ("b", 4.0)]));
        assert_eq!(rounds(&[]), []);
        assert_eq!(median(Vec::new()), None);
        assert_eq!(median(vec![3.0, 1.0]), Some(1.0));
    }
}
