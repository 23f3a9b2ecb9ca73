//! The constants with which picks lose least on what was not fitted to.
//!
//! The search goes along one constant after the other, by factors that grow where they help and shrink where they do not. What it
//! minimises is [`loss`]; predictions that come nearer do not make better picks by themselves, nor do picks of what was fitted to. So
//! several [weights](WAYS) are tried on parts of the problems, and judged by the picks of the parts that were left out, beside the
//! constants as they are. The best of them is then fitted to all.

use std::thread;

use warpsmith::internal::pick::heuristic::Constants;

use super::data::Pair;
use super::loss::{self, Weights, loss};
use crate::shared::complain;

/// Of the factor that a constant is tried with.
const STEP: f64 = 0.15;
const STEP_MIN: f64 = 0.002;
/// Parts that problems are divided into.
const PARTS: usize = 4;

/// What is tried.
const WAYS: [Weights; 4] = [
    Weights { errors: 1.0, picks: 0.3, prior: 3e-5 },
    Weights { errors: 0.3, picks: 1.0, prior: 3e-4 },
    Weights { errors: 0.1, picks: 1.0, prior: 1e-3 },
    Weights { errors: 0.1, picks: 1.0, prior: 5e-3 },
];

/// What is known to be so, and what data do not tell.
const KEPT: [&str; 6] = ["ghz", "memory_share", "tensor", "table", "table_group", "cluster_of_four"];

/// Factors of what hinders: whatever data say, it does not help.
const HINDRANCES: [&str; 5] = ["rotation", "drift", "decode_apart", "tall", "tall_short"];

/// Where a fit begins, and how long it goes on.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    pub constants: Constants,
    /// Over all constants.
    pub rounds: usize,
    /// How often constants are thrown off, and the fit begins again.
    pub again: usize,
}

/// What minimises the picks' losses on parts that were left out; as it is, if nothing is better there.
pub fn fit(pairs: &[&Pair], start: &Start) -> Constants {
    let parts = parts(pairs);
    let judged = |of: &dyn Fn(usize) -> Vec<f64>| {
        let lost: Vec<f64> = (0..PARTS).flat_map(of).collect();
        loss::judged(&lost)
    };
    let as_it_is = judged(&|part| loss::lost(&parts[part].out, &start.constants));
    complain!("parts left out: as it is {as_it_is:.6}");
    let found: Vec<Vec<Vec<f64>>> = thread::scope(|scope| {
        let of = |way: &'static Weights, part: &'_ Part<'_>| {
            let found = valley(&part.within, start, way);
            loss::lost(&part.out, &found)
        };
        let ways = WAYS.iter().map(|way| {
            let threads = parts.iter().map(|part| scope.spawn(move || of(way, part)));
            threads.collect::<Vec<_>>()
        });
        let ways: Vec<_> = ways.collect();
        let joined =
            ways.into_iter().map(|threads| threads.into_iter().filter_map(|thread| thread.join().ok()).collect());
        joined.collect()
    });
    let mut best = (as_it_is, None);
    for (way, lost) in WAYS.iter().zip(found) {
        let judged = loss::judged(&lost.concat());
        complain!("parts left out: {way:?} {judged:.6}");
        if judged < best.0 {
            best = (judged, Some(way));
        }
    }
    best.1.map_or(start.constants, |way| valley(pairs, start, way))
}

/// Pairs of some problems, and all others.
struct Part<'a> {
    out: Vec<&'a Pair>,
    within: Vec<&'a Pair>,
}

/// Every so many problems, all M of a problem together.
fn parts<'a>(pairs: &[&'a Pair]) -> Vec<Part<'a>> {
    let mut problems: Vec<_> = pairs.iter().map(|pair| pair.problem.to_string()).collect();
    problems.dedup();
    let of =
        |pair: &Pair| problems.iter().position(|problem| *problem == pair.problem.to_string()).unwrap_or(0) % PARTS;
    let part = |part| {
        let (out, within) = pairs.iter().copied().partition(|pair| of(pair) == part);
        Part { out, within }
    };
    (0..PARTS).map(part).collect()
}

/// How far constants are thrown before they are fitted once more, as the logarithm of a factor.
const THROW: f64 = 0.25;

/// Fits, and then so many times again from where the best was, with every constant thrown off a little: there are many valleys.
fn valley(pairs: &[&Pair], start: &Start, weights: &Weights) -> Constants {
    let mut rng = fastrand::Rng::with_seed(1);
    let descend = |begin: &Constants| Descent { pairs, start, weights }.from(begin);
    let mut best = descend(&start.constants);
    for _ in 0..start.again {
        let mut thrown = best.1.values();
        for (value, name) in thrown.iter_mut().zip(Constants::NAMES) {
            if !KEPT.contains(name) {
                *value *= (THROW * (2.0 * rng.f64() - 1.0)).exp();
            }
        }
        let found = descend(&best.1.with_values(&thrown));
        if found.0 < best.0 {
            best = found;
        }
    }
    best.1
}

struct Descent<'a> {
    pairs: &'a [&'a Pair],
    start: &'a Start,
    weights: &'a Weights,
}

impl Descent<'_> {
    /// What is minimised.
    fn penalised(&self, constants: &Constants) -> f64 {
        let far = |(value, begin): (f64, f64)| (value / begin).ln().powi(2);
        let apart: f64 = constants.values().into_iter().zip(self.start.constants.values()).map(far).sum();
        loss(self.pairs, constants, self.weights) + self.weights.prior * apart
    }

    /// The bottom of the valley that `begin` is in.
    fn from(&self, begin: &Constants) -> (f64, Constants) {
        let mut best = *begin;
        let mut least = self.penalised(&best);
        let mut steps = vec![STEP; Constants::NAMES.len()];
        for _ in 0..self.start.rounds {
            let before = least;
            for at in 0..steps.len() {
                if KEPT.contains(&Constants::NAMES[at]) || steps[at] < STEP_MIN {
                    continue;
                }
                let least_value = if HINDRANCES.contains(&Constants::NAMES[at]) { 1.0 } else { 0.0 };
                let tried = [steps[at], -steps[at]].map(|step| {
                    let mut values = best.values();
                    values[at] = (values[at] * step.exp()).max(least_value);
                    let tried = best.with_values(&values);
                    (self.penalised(&tried), tried, step)
                });
                let Some((loss, found, step)) = tried.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)) else { continue };
                if loss < least {
                    (least, best) = (loss, found);
                    // The same way again comes first.
                    steps[at] = step * 1.3;
                } else {
                    steps[at] *= 0.5;
                }
                steps[at] = steps[at].abs().min(0.7);
            }
            // Once more from larger steps: constants depend on each other.
            if before - least < 1e-6 * before {
                if steps.iter().all(|step| *step > STEP / 2.0) {
                    break;
                }
                steps.iter_mut().for_each(|step| *step = STEP.min(*step * 30.0).max(0.01));
            }
        }
        (least, best)
    }
}

#[cfg(test)]
mod tests {
    use warpsmith::internal::pick::heuristic::{Kind, Tables, load, predict_with, rank};
    use warpsmith::spec::{Activation, Arch, Problem, Spec};

    use super::*;

    fn built_in() -> Constants {
        *Tables::BUILT_IN.get(Kind::Single)
    }

    /// What the heuristic ranks highest, as if the constants were these.
    fn pairs(constants: &Constants) -> Vec<Pair> {
        let duals = (4..12).map(|n| Problem::dual_gemm(Activation::Silu).n(256 * n).k(2048).prepared());
        let pair = |problem: Problem| {
            let m = 64;
            let us = |spec: &Spec| predict_with(spec, &load(&problem, m), constants).us;
            let specs = rank(&problem, m, &Arch::H200, 10).into_iter().map(|ranked| ranked.spec);
            let timed: Vec<(Spec, f64)> = specs.map(|spec| (spec, us(&spec))).collect();
            let best = timed.iter().map(|(_, us)| *us).fold(f64::INFINITY, f64::min);
            Pair { problem, m, held_out: false, timed, best }
        };
        duals.map(pair).collect()
    }

    #[test]
    fn picks_become_better_where_constants_were_wrong() {
        let mut values = built_in().values();
        let at = |name: &str| Constants::NAMES.iter().position(|known| *known == name).unwrap();
        values[at("exchange")] *= 0.3;
        values[at("decode_chain")] *= 1.6;
        let pairs = pairs(&built_in().with_values(&values));
        let pairs: Vec<&Pair> = pairs.iter().collect();
        let start = Start { constants: built_in(), rounds: 6, again: 0 };
        let judged = |constants: &Constants| loss::judged(&loss::lost(&pairs, constants));
        let found = fit(&pairs, &start);
        assert!(judged(&found) < 0.3 * judged(&start.constants), "{} {}", judged(&found), judged(&start.constants));
    }

    #[test]
    fn constants_that_pick_best_stay() {
        let pairs = pairs(&built_in());
        let pairs: Vec<&Pair> = pairs.iter().collect();
        let start = Start { constants: built_in(), rounds: 2, again: 0 };
        assert_eq!(fit(&pairs, &start), built_in());
    }
}
