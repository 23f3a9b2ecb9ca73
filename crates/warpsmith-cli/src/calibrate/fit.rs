//! The constants with which the model comes closest to what was measured.
//!
//! Within a pair only the order matters, and near its best most: errors are those of the logarithm of the predicted time
//! against the measured one, less the mean of the pair (which counts a little for itself), and variants count less the
//! slower they are. To that comes the expected regret of a choice by slightly blurred predictions, which is what the
//! model is for. The search goes along one constant after the other, by factors that grow where they help and shrink
//! where they do not.

use warpsmith::internal::pick::heuristic::{Constants, load, predict_with};

use super::data::Pair;
use crate::shared::complain;

/// A variant that takes this much more than the best, as a share of it, counts 1/e.
const NEAR: f64 = 0.6;
/// Of the least that a variant counts.
const FAR: f64 = 0.05;
/// How much the mean error of a pair counts.
const OFFSET: f64 = 0.3;
/// How much the expected regret counts.
const REGRET: f64 = 0.3;
/// Predictions within so much of each other are as good as the same.
const BLUR: f64 = 0.02;
/// Of the factor that a constant is tried with.
const STEP: f64 = 0.15;
const STEP_MIN: f64 = 0.002;

/// How much it counts that a constant is not what the fit began with: enough to settle those that data do not.
const PRIOR: f64 = 3e-5;

/// What the fit minimises.
fn penalised(pairs: &[&Pair], constants: &Constants, begin: &Constants) -> f64 {
    let far = |(value, begin): (f64, f64)| (value / begin).ln().powi(2);
    loss(pairs, constants) + PRIOR * constants.values().into_iter().zip(begin.values()).map(far).sum::<f64>()
}

/// How far predictions are off, on average over the pairs.
pub fn loss(pairs: &[&Pair], constants: &Constants) -> f64 {
    pairs.iter().map(|pair| pair_loss(pair, constants)).sum::<f64>() / pairs.len() as f64
}

fn pair_loss(pair: &Pair, constants: &Constants) -> f64 {
    let load = load(&pair.problem, pair.m);
    let of = |(spec, us): &(warpsmith::spec::Spec, f64)| {
        let slower = us / pair.best - 1.0;
        let error = (predict_with(spec, &load, constants).us / us).ln();
        (FAR + (-slower / NEAR).exp(), error, slower)
    };
    let all: Vec<(f64, f64, f64)> = pair.timed.iter().map(of).collect();
    let weights: f64 = all.iter().map(|(weight, ..)| weight).sum();
    let mean = all.iter().map(|(weight, error, _)| weight * error).sum::<f64>() / weights;
    let squares = all.iter().map(|(weight, error, _)| weight * (error - mean).powi(2)).sum::<f64>() / weights;
    // Chances of being chosen.
    let predicted = |(_, error, slower): &(f64, f64, f64)| error + (1.0 + slower).ln();
    let least = all.iter().map(predicted).fold(f64::INFINITY, f64::min);
    let chance = |entry: &(f64, f64, f64)| (-(predicted(entry) - least) / BLUR).exp();
    let chances: f64 = all.iter().map(chance).sum();
    let regret = all.iter().map(|entry| chance(entry) * entry.2).sum::<f64>() / chances;
    squares + OFFSET * mean * mean + REGRET * regret
}

/// How far constants are thrown before they are fitted once more, as the logarithm of a factor.
const THROW: f64 = 0.25;

/// Fits, starting from `constants`, and then so many times again from where the best was, with every constant thrown off
/// a little: there are many valleys. `keep` names those that stay.
pub fn fit(pairs: &[&Pair], constants: &Constants, rounds: usize, again: usize, keep: &[&str]) -> Constants {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut best = descend(pairs, constants, constants, rounds, keep);
    for attempt in 1..=again {
        let mut thrown = best.1.values();
        for (value, name) in thrown.iter_mut().zip(Constants::NAMES) {
            if !keep.contains(name) {
                *value *= (THROW * (2.0 * rng.f64() - 1.0)).exp();
            }
        }
        let found = descend(pairs, &best.1.with_values(&thrown), constants, rounds, keep);
        if found.0 < best.0 {
            best = found;
        }
        complain!("attempt {attempt}: {:.6}, best {:.6}", found.0, best.0);
    }
    best.1
}

/// The bottom of the valley that `begin` is in.
fn descend(pairs: &[&Pair], begin: &Constants, prior: &Constants, rounds: usize, keep: &[&str]) -> (f64, Constants) {
    let mut best = *begin;
    let mut least = penalised(pairs, &best, prior);
    let mut steps = vec![STEP; Constants::NAMES.len()];
    for _ in 0..rounds {
        let before = least;
        for at in 0..steps.len() {
            if keep.contains(&Constants::NAMES[at]) || steps[at] < STEP_MIN {
                continue;
            }
            let tried = [steps[at], -steps[at]].map(|step| {
                let mut values = best.values();
                values[at] *= step.exp();
                let tried = best.with_values(&values);
                (penalised(pairs, &tried, prior), tried, step)
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
