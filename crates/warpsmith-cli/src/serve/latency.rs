//! How long calls took, on the host.

use std::collections::BTreeMap;
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

impl Latencies {
    /// Microseconds that so much of the calls took at most: half, nine tenths, …; nothing of none.
    fn shares(&self) -> Option<[(&'static str, f64); 5]> {
        let mut sorted = self.took[..self.calls].to_vec();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        let shares = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];
        Some(shares.map(|(name, share)| (name, f64::from(sorted[(last as f64 * share) as usize]) / 1e3)))
    }

    /// For machines, in microseconds.
    pub fn json(&self) -> serde_json::Value {
        let shares = self.shares().map(|shares| shares.into_iter().collect::<BTreeMap<_, _>>());
        serde_json::json!({ "calls": self.calls, "us": shares })
    }
}

impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some([shares @ .., (_, most)]) = self.shares() else { return f.write_str("none") };
        write!(f, "{:>9} calls", self.calls)?;
        shares.iter().try_for_each(|(name, us)| write!(f, "  {name} {us:7.2}"))?;
        write!(f, "  max {most:9.2} us")
    }
}
