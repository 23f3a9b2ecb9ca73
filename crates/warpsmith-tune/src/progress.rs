//! What a tuning under way tells whoever watches it.

use std::fmt;
use std::time::Duration;

use warpsmith::spec::Spec;

/// What a tuning is at, as told to whoever watches it.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// What is being done.
    pub stage: Stage,
    /// The candidate that was just done with.
    pub spec: &'a Spec,
    /// Candidates done with in this stage.
    pub done: usize,
    /// Candidates of this stage at most, if that is known.
    pub of: Option<usize>,
    /// The shortest time screened so far, in microseconds a call.
    pub best_us: Option<f64>,
    /// Since the beginning.
    pub elapsed: Duration,
}

/// What a tuning does, in this order; the second and third once more for each round of neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Build, check, and time shortly.
    Screening,
    /// Time the best shortly once more.
    Halving,
    /// Time the best of those in turn with the best so far.
    Duels,
    /// Build, check and time the neighbours of the best so far shortly: this round, from 1.
    Climbing(usize),
    /// Time the winner in turn with the incumbent, and the choice with the baseline.
    Confirming,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stage::Screening => f.write_str("screening"),
            Stage::Halving => f.write_str("halving"),
            Stage::Duels => f.write_str("duels"),
            Stage::Climbing(round) => write!(f, "neighbours, round {round}"),
            Stage::Confirming => f.write_str("confirming"),
        }
    }
}
