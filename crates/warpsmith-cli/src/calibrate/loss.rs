//! How far a model is off: in what it predicts, and in what is picked by it.

use warpsmith::internal::pick::heuristic::{Constants, load, predict_with};
use warpsmith::spec::Spec;

use super::data::Pair;

/// A variant that takes this much more than the best, as a share of it, counts 1/e.
const NEAR: f64 = 0.6;
/// Of the least that a variant counts.
const FAR: f64 = 0.05;
/// How much the mean error of a pair counts.
const OFFSET: f64 = 0.3;
/// Predictions within so much of each other are as good as the same.
const BLUR: f64 = 0.02;
/// How much the square of what a pick loses counts: a pick that loses a quarter is worse than five that lose a twentieth.
const WORST: f64 = 2.0;

/// What counts how much.
#[derive(Clone, Copy, Debug)]
pub struct Weights {
    /// Errors of predictions.
    pub errors: f64,
    /// What a choice by slightly blurred predictions is expected to lose.
    pub picks: f64,
    /// That a constant is not what the fit began with, by the square of the factor's logarithm.
    pub prior: f64,
}

/// On average over the pairs.
pub fn loss(pairs: &[&Pair], constants: &Constants, weights: &Weights) -> f64 {
    pairs.iter().map(|pair| of(pair, constants, weights)).sum::<f64>() / pairs.len().max(1) as f64
}

/// Of a pair. Errors are those of the logarithm of the predicted time against the measured one, less the mean of the pair, as within a
/// pair only the order matters; variants count less the slower they are.
fn of(pair: &Pair, constants: &Constants, weights: &Weights) -> f64 {
    let load = load(&pair.problem, pair.m);
    let of = |(spec, us): &(Spec, f64)| {
        let slower = us / pair.best - 1.0;
        let error = (predict_with(spec, &load, constants).us / us).ln();
        (FAR + (-slower / NEAR).exp(), error, slower)
    };
    let all: Vec<(f64, f64, f64)> = pair.timed.iter().map(of).collect();
    let counted: f64 = all.iter().map(|(weight, ..)| weight).sum();
    let mean = all.iter().map(|(weight, error, _)| weight * error).sum::<f64>() / counted;
    let squares = all.iter().map(|(weight, error, _)| weight * (error - mean).powi(2)).sum::<f64>() / counted;
    // Chances of being chosen.
    let predicted = |(_, error, slower): &(f64, f64, f64)| error + (1.0 + slower).ln();
    let least = all.iter().map(predicted).fold(f64::INFINITY, f64::min);
    let chance = |entry: &(f64, f64, f64)| (-(predicted(entry) - least) / BLUR).exp();
    let chances: f64 = all.iter().map(chance).sum();
    let lost = |(.., slower): &(f64, f64, f64)| slower.ln_1p() + WORST * slower.ln_1p().powi(2);
    let picks = all.iter().map(|entry| chance(entry) * lost(entry)).sum::<f64>() / chances;
    weights.errors * (squares + OFFSET * mean * mean) + weights.picks * picks
}

/// What picks of what was measured lose to the best of it, as logarithms.
pub fn lost(pairs: &[&Pair], constants: &Constants) -> Vec<f64> {
    let of = |pair: &&Pair| {
        let load = load(&pair.problem, pair.m);
        let us = |spec: &Spec| predict_with(spec, &load, constants).us;
        let picked = pair.timed.iter().min_by(|(a, _), (b, _)| us(a).total_cmp(&us(b)));
        picked.map_or(0.0, |(_, us)| (us / pair.best).ln())
    };
    pairs.iter().map(of).collect()
}

/// By how much picks are to be judged: as [`loss`] counts it.
pub fn judged(lost: &[f64]) -> f64 {
    lost.iter().map(|lost| lost + WORST * lost.powi(2)).sum::<f64>() / lost.len().max(1) as f64
}

/// In words.
pub fn picks(pairs: &[&Pair], constants: &Constants) -> String {
    let lost = lost(pairs, constants);
    let mean = lost.iter().sum::<f64>() / lost.len().max(1) as f64;
    let worst = lost.iter().copied().fold(0.0, f64::max);
    let many = lost.iter().filter(|lost| lost.exp_m1() > 0.15).count();
    let [mean, worst] = [mean, worst].map(|lost| 100.0 * lost.exp_m1());
    format!("picks lose {mean:.2} %, worst {worst:.1} %, {many} of {} above 15 %", lost.len())
}
