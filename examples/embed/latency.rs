//! How long calls took, on the host.

use std::fmt;
use std::time::Duration;

/// Times of calls, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    took: Vec<u32>,
    calls: usize,
}

impl Latencies {
    /// With room that the system has given already: neither is anything allocated while it is measured, nor does a page
    /// come with its first use.
    pub fn with_room(calls: usize) -> Self {
        Self { took: vec![u32::MAX; calls], calls: 0 }
    }

    /// Those that there is no room for are left out.
    pub fn note(&mut self, took: Duration) {
        if let Some(place) = self.took.get_mut(self.calls) {
            *place = u32::try_from(took.as_nanos()).unwrap_or(u32::MAX);
            self.calls += 1;
        }
    }

    pub fn and(mut self, others: &Self) -> Self {
        self.took.truncate(self.calls);
        self.took.extend_from_slice(&others.took[..others.calls]);
        self.calls += others.calls;
        self
    }
}

impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted = self.took[..self.calls].to_vec();
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
