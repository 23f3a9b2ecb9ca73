//! How long calls took, on the host.

use std::fmt;
use std::time::Duration;

/// Times of calls, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Vec<u32>);

impl Latencies {
    /// With room, so that nothing is allocated while it is measured.
    pub fn with_room(calls: usize) -> Self {
        Self(Vec::with_capacity(calls))
    }

    /// Those that there is no room for are left out.
    pub fn note(&mut self, took: Duration) {
        if self.0.len() < self.0.capacity() {
            self.0.push(u32::try_from(took.as_nanos()).unwrap_or(u32::MAX));
        }
    }

    pub fn and(mut self, mut others: Self) -> Self {
        self.0.append(&mut others.0);
        self
    }
}

impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let Some(most) = sorted.last() else { return f.write_str("none") };
        let us = |ns: u32| f64::from(ns) / 1e3;
        write!(f, "{:>9} calls", sorted.len())?;
        for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)] {
            let at = ((sorted.len() - 1) as f64 * share) as usize;
            write!(f, "  {name} {:7.2}", us(sorted[at]))?;
        }
        write!(f, "  max {:9.2} us", us(*most))
    }
}
