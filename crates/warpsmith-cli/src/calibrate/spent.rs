//! Where the time of the one thread goes that has the device.

use std::fmt;
use std::time::Instant;

/// Seconds by what they went into.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    planning: f64,
    operands: f64,
    uploads: f64,
    kernels: f64,
    trials: f64,
    again: f64,
}

/// Adds what `what` takes.
fn timed<R>(seconds: &mut f64, what: impl FnOnce() -> R) -> R {
    let begin = Instant::now();
    let result = what();
    *seconds += begin.elapsed().as_secs_f64();
    result
}

impl Spent {
    /// Waiting for what is to be measured.
    pub fn planning<R>(&mut self, what: impl FnOnce() -> R) -> R {
        timed(&mut self.planning, what)
    }

    /// Waiting for operands and their results.
    pub fn operands<R>(&mut self, what: impl FnOnce() -> R) -> R {
        timed(&mut self.operands, what)
    }

    /// Bringing operands to the device.
    pub fn uploads<R>(&mut self, what: impl FnOnce() -> R) -> R {
        timed(&mut self.uploads, what)
    }

    /// Waiting for kernels.
    pub fn kernels<R>(&mut self, what: impl FnOnce() -> R) -> R {
        timed(&mut self.kernels, what)
    }

    /// Checking and timing briefly.
    pub fn trials<R>(&mut self, what: impl FnOnce() -> R) -> R {
        timed(&mut self.trials, what)
    }

    /// Timing again.
    pub fn again<R>(&mut self, what: impl FnOnce() -> R) -> R {
        timed(&mut self.again, what)
    }
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { planning, operands, uploads, kernels, trials, again } = self;
        write!(f, "waited {planning:.1} s for the plan, {operands:.1} s for operands, {kernels:.1} s for kernels, ")?;
        write!(f, "uploads {uploads:.1} s, trials {trials:.1} s, again {again:.1} s")
    }
}
