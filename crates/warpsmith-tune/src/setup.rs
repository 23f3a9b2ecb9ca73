//! What a measurer is for.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::trial::Launching;
use warpsmith::internal::{Raise, for_kernel};
use warpsmith::spec::{Problem, Spec};
use warpsmith::{Error, Result};

/// A kernel that runs longer hangs: a thousand times what a launch of millions of tokens takes.
const LIMIT: Duration = Duration::from_secs(3);
/// Rows of the second check at most: more than any tile has, and soon compared.
pub(super) const AWKWARD_MAX: u32 = 1021;

/// The problem and the rows that a measurer checks and times kernels for, and on what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    #[serde(with = "spelled")]
    problem: Problem,
    rows: Vec<u32>,
    further_rows: Vec<Vec<u32>>,
    device: usize,
    launching: Launching,
    limit: Duration,
}

impl Setup {
    /// For `m` rows (of all groups together, in even shares), on device 0, with plain launches. A measurer refuses what
    /// is not legal.
    #[must_use]
    pub fn new(problem: &Problem, m: u32) -> Self {
        // A number of groups that is not legal may be one of billions.
        let rows = if problem.check().is_ok() { shares(problem, m) } else { Vec::new() };
        let (device, launching, limit) = (0, Launching::Plain, LIMIT);
        Self { problem: for_kernel(problem), rows, further_rows: Vec::new(), device, launching, limit }
    }

    /// With these rows of each group; one number if the problem has no groups.
    #[must_use]
    pub fn rows(mut self, rows: impl Into<Vec<u32>>) -> Self {
        self.rows = rows.into();
        self
    }

    /// Further ways in which as many rows fall into the groups: calls that are timed go round all of them, so that no kernel
    /// wins by tiles that fit one way alone. What is checked are [`Setup::rows`].
    #[must_use]
    pub fn further_rows(mut self, rows: Vec<Vec<u32>>) -> Self {
        self.further_rows = rows;
        self
    }

    /// On the device with this ordinal.
    #[must_use]
    pub fn device(mut self, ordinal: usize) -> Self {
        self.device = ordinal;
        self
    }

    /// How timed calls follow each other.
    #[must_use]
    pub fn launching(mut self, launching: Launching) -> Self {
        self.launching = launching;
        self
    }

    /// A kernel that runs longer than this hangs (default: 3 s).
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    pub(super) fn problem(&self) -> &Problem {
        &self.problem
    }

    pub(super) fn ordinal(&self) -> usize {
        self.device
    }

    pub(super) fn way(&self) -> Launching {
        self.launching
    }

    pub(super) fn longest(&self) -> Duration {
        self.limit
    }

    /// Rows of the check that a timing follows.
    ///
    /// # Errors
    /// Those of [`Problem::check`]; data, if they are not one number for each group, or not 1 to [`Problem::M_MAX`]
    /// together.
    pub(super) fn timed_rows(&self) -> Result<&[u32]> {
        self.problem.check()?;
        let groups = self.problem.groups().unwrap_or(1) as usize;
        if self.rows.len() != groups {
            return Err(Error::data(format!(
                "rows of {} groups given, {} has {groups}",
                self.rows.len(),
                self.problem
            )));
        }
        let m: u64 = self.rows.iter().map(|rows| u64::from(*rows)).sum();
        if m == 0 || m > u64::from(Problem::M_MAX) {
            return Err(Error::data(format!("{m} rows in all, must be 1 to {}", Problem::M_MAX)));
        }
        Ok(&self.rows)
    }

    /// Further rows that are timed.
    ///
    /// # Errors
    /// As [`Setup::timed_rows`]; data, if any are not as many in all as the first.
    pub(super) fn further_timed_rows(&self) -> Result<&[Vec<u32>]> {
        let all = |rows: &[u32]| rows.iter().map(|rows| u64::from(*rows)).sum::<u64>();
        let first = self.timed_rows()?;
        match self.further_rows.iter().find(|rows| rows.len() != first.len() || all(rows) != all(first)) {
            Some(rows) => Err(Error::data(format!(
                "further rows: {} in {} groups, must be {} in {}",
                all(rows),
                rows.len(),
                all(first),
                first.len()
            ))),
            None => Ok(&self.further_rows),
        }
    }

    /// Rows of a second check: an odd number, and so no whole tiles; fewer, where that can be; in uneven shares, the
    /// first group's empty.
    ///
    /// # Errors
    /// As [`Setup::timed_rows`].
    pub(super) fn awkward_rows(&self) -> Result<Vec<u32>> {
        let m: u32 = self.timed_rows()?.iter().sum();
        let odd = if m == 1 { 3 } else { ((m - 2) | 1).min(AWKWARD_MAX) };
        if self.rows.len() == 1 {
            return Ok(vec![odd]);
        }
        // 0 2 4 1 3, 0 2 4 1 3, …
        let weights: Vec<u32> = (0..self.rows.len() as u32).map(|group| 2 * group % 5).collect();
        let whole: u32 = weights.iter().sum();
        let mut rows: Vec<u32> =
            weights.iter().map(|weight| (u64::from(odd) * u64::from(*weight) / u64::from(whole)) as u32).collect();
        rows[1] += odd - rows.iter().sum::<u32>();
        Ok(rows)
    }

    /// Whether a kernel is one for this problem.
    ///
    /// # Errors
    /// Unsupported, with both problems.
    pub(super) fn check(&self, spec: &Spec) -> Result<()> {
        if *spec.problem() == self.problem {
            return Ok(());
        }
        Err(Error::unsupported(format!("{} was given to a measurer for {}", spec.name(), self.problem)))
    }
}

/// `m` rows shared out evenly to the groups of a problem: one number if it has none.
///
/// # Errors
/// Those of [`Problem::check_for`].
pub fn even_rows(problem: &Problem, m: u32) -> Result<Vec<u32>> {
    problem.check_for(m)?;
    Ok(shares(problem, m))
}

fn shares(problem: &Problem, m: u32) -> Vec<u32> {
    let groups = problem.groups().unwrap_or(1);
    (0..groups).map(|group| m / groups + u32::from(group < m % groups)).collect()
}

/// serde by the one spelling.
pub(super) mod spelled {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(crate) fn deserialize<'de, T: FromStr<Err = warpsmith::Error>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<T, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpsmith::spec::Activation;

    #[test]
    fn awkward_rows_are_odd_fewer_and_ragged() {
        let dual = Problem::dual_gemm(Activation::Silu).n(64).k(128);
        let awkward = |problem: &Problem, m| Setup::new(problem, m).awkward_rows().unwrap();
        let found: Vec<u32> = [1, 2, 3, 16, 257, 512, 8192].into_iter().flat_map(|m| awkward(&dual, m)).collect();
        assert_eq!(found, [3, 1, 1, 15, 255, 511, 1021]);
        for groups in 2..=40 {
            for m in [1, 7, 256, 4096] {
                let rows = awkward(&dual.grouped(groups), m);
                assert_eq!((rows.len(), rows[0]), (groups as usize, 0));
                assert_eq!(rows.iter().sum::<u32>(), awkward(&dual, m)[0]);
            }
        }
        assert_eq!(awkward(&dual.grouped(5), 101), [0, 22, 39, 9, 29]);
    }

    #[test]
    fn rows_are_shared_out_evenly_and_checked() {
        let grouped = Problem::gemm().n(64).k(128).grouped(3);
        assert_eq!(even_rows(&grouped, 8).unwrap(), [3, 3, 2]);
        assert_eq!(even_rows(&Problem::gemm().n(64).k(128), 8).unwrap(), [8]);
        assert_eq!(Setup::new(&grouped, 8).timed_rows().unwrap(), [3, 3, 2]);
        let wrong = |setup: Setup| setup.timed_rows().unwrap_err().to_string();
        assert!(wrong(Setup::new(&grouped, 8).rows([8])).starts_with("rows of 1 groups given"));
        assert!(wrong(Setup::new(&grouped, 0)).starts_with("0 rows in all"));
        assert!(wrong(Setup::new(&grouped, 0).rows([u32::MAX, u32::MAX, 1])).contains("rows in all"));
    }

    #[test]
    fn further_rows_are_as_many() {
        let grouped = Problem::gemm().n(64).k(128).grouped(3);
        let with = |rows: [u32; 3]| Setup::new(&grouped, 8).further_rows(vec![vec![8, 0, 0], rows.to_vec()]);
        assert_eq!(with([0, 1, 7]).further_timed_rows().unwrap(), [[8, 0, 0], [0, 1, 7]]);
        let wrong = |setup: &Setup| setup.further_timed_rows().unwrap_err().to_string();
        assert_eq!(wrong(&with([0, 1, 8])), "further rows: 9 in 3 groups, must be 8 in 3");
        assert_eq!(
            wrong(&with([0, 1, 7]).rows([8])),
            "rows of 1 groups given, grouped3.gemm:f16*nvfp4>f16:n64:k128 has 3"
        );
        let two = Setup::new(&grouped, 8).further_rows(vec![vec![4, 4]]);
        assert_eq!(wrong(&two), "further rows: 8 in 2 groups, must be 8 in 3");
    }

    /// Within no memory, and at once.
    #[test]
    fn billions_of_groups_are_refused_before_their_rows_are_made() {
        for groups in [0, Problem::GROUPS_MAX + 1, u32::MAX] {
            let problem = Problem::gemm().n(64).k(128).grouped(groups);
            let setup = Setup::new(&problem, 8);
            assert!(setup.rows.is_empty(), "{groups}");
            for error in [even_rows(&problem, 8).unwrap_err(), setup.timed_rows().unwrap_err()] {
                assert!(error.is_unsupported(), "{error}");
                assert!(error.to_string().ends_with(&format!("groups = {groups}: must be 1 to 1024")), "{error}");
            }
        }
        let most = Problem::gemm().n(64).k(128).grouped(Problem::GROUPS_MAX);
        assert_eq!(even_rows(&most, 1025).unwrap().iter().sum::<u32>(), 1025);
        for m in [0, Problem::M_MAX + 1, u32::MAX] {
            assert!(even_rows(&most, m).unwrap_err().to_string().contains(&format!("M = {m}: must be 1 to 16777216")));
        }
    }

    #[test]
    fn it_travels_as_json() {
        let problem = Problem::dual_gemm(Activation::Silu).n(64).k(128).grouped(2).prepared().m_up_to(7);
        let setup =
            Setup::new(&problem, 5).device(1).launching(Launching::Dependent).limit(Duration::from_millis(1500));
        let setup = setup.further_rows(vec![vec![0, 5]]);
        let json = serde_json::to_string(&setup).unwrap();
        assert!(json.contains("\"grouped2.dual_gemm.silu:"), "{json}");
        assert_eq!(serde_json::from_str::<Setup>(&json).unwrap(), setup);
        assert!(serde_json::from_str::<Setup>(&json.replace("dual_gemm", "dul_gemm")).is_err());
    }
}
