//! What came of a warm-up.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::cache::Tier;

/// What came of a warm-up. `Display` gives a few lines, and one for each failure.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
#[must_use]
pub struct WarmUpReport {
    /// Kernels that the manifest needs.
    pub kernels: usize,
    /// Problems that they are for.
    pub problems: usize,
    /// Finding out which they are, in milliseconds.
    pub enumerate_ms: f64,
    /// All of it, in milliseconds.
    pub elapsed_ms: f64,
    /// Threads that compiled and loaded.
    pub threads: usize,
    /// Kernels that are there now, by name.
    pub warm: Vec<Warmed>,
    /// What is not there, and why.
    pub failures: Vec<Failure>,
    /// Kernels that were not tried, since the warm-up was cancelled.
    pub left_out: usize,
}

/// A kernel that is there.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Warmed {
    /// Its name, `PROBLEM/VARIANT`.
    pub kernel: String,
    /// Where its machine code came from; memory, if it was loaded before.
    pub tier: Tier,
    /// Getting that, in milliseconds.
    pub fetch_ms: f64,
    /// Loading it, in milliseconds in the driver; none, if it was loaded before or is only compiled.
    pub load_ms: Option<f64>,
    /// Waiting until the loads before it were done, in milliseconds; none, as above.
    pub load_wait_ms: Option<f64>,
}

/// A kernel that is not there.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Failure {
    /// Its name; of a problem that has no kernel, the problem.
    pub kernel: String,
    /// What it is for: problems and rows.
    pub serves: Vec<String>,
    /// What went wrong.
    pub why: String,
    /// The kernel that serves in its place; none, if calls for these rows fail.
    pub instead: Option<String>,
}

impl WarmUpReport {
    /// Whether everything that the manifest needs is there.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.failures.is_empty() && self.left_out == 0
    }

    /// Kernels whose machine code came from a tier.
    #[must_use]
    pub fn from(&self, tier: Tier) -> usize {
        self.warm.iter().filter(|warmed| warmed.tier == tier).count()
    }

    /// Kernels that were compiled.
    #[must_use]
    pub fn compiles(&self) -> usize {
        self.from(Tier::Compiled)
    }
}

impl fmt::Display for WarmUpReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernels, problems, enumerate_ms, elapsed_ms, threads, warm, failures, left_out } = self;
        writeln!(f, "{} of {kernels} kernels for {problems} problems in {elapsed_ms:.0} ms", warm.len())?;
        writeln!(f, "found out which in {enumerate_ms:.1} ms; {threads} threads")?;
        let tiers = Tier::ALL.iter().map(|tier| format!("{tier} {}", self.from(*tier)));
        writeln!(f, "{}", tiers.collect::<Vec<_>>().join(", "))?;
        let total = |times: &[f64]| (times.iter().sum::<f64>(), times.iter().copied().fold(0.0, f64::max));
        let (fetching, slowest) = total(&warm.iter().map(|warmed| warmed.fetch_ms).collect::<Vec<_>>());
        write!(f, "machine code: {fetching:.0} ms of all threads, {slowest:.1} ms at most")?;
        let loads: Vec<f64> = warm.iter().filter_map(|warmed| warmed.load_ms).collect();
        if !loads.is_empty() {
            let (loading, slowest) = total(&loads);
            let waiting: f64 = warm.iter().filter_map(|warmed| warmed.load_wait_ms).sum();
            write!(f, "\nloading: {loading:.1} ms in the driver for {}, {slowest:.2} ms at most", loads.len())?;
            write!(f, "; {waiting:.1} ms of all threads until it was their turn")?;
        }
        if *left_out > 0 {
            write!(f, "\ncancelled: {left_out} kernels were not tried")?;
        }
        failures.iter().try_for_each(|failure| write!(f, "\n{failure}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, serves, why, instead } = self;
        write!(f, "FAILED {kernel}: {why}; {} ", serves.join(", "))?;
        match instead {
            Some(other) => write!(f, "is served by {other}"),
            None => f.write_str("is not served"),
        }
    }
}

/// As reports have it.
pub(super) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
