//! What will be asked for: problems, each with its M, routers, combiners and quantisers. Written by hand, or recorded from traffic.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

use super::rows::Rows;
use crate::error::{Error, Result};
use crate::file;
use crate::simt::Experts;
use crate::simt::Simt;
use crate::spec::{Combine, Problem, Quantise, Route};

/// The only version there is.
const VERSION: u32 = 1;

/// The closed world of a warm-up: problems, each with the numbers of rows that it will be asked for, and [`Route`]s,
/// [`Combine`]s and [`Quantise`]s, whose kernels take any number of tokens.
///
/// As text it is TOML, a line a problem, in the spellings of [`Problem`] and [`Rows`]; all others are lists:
///
/// ```
/// use warpsmith::engine::Manifest;
/// let manifest = Manifest::parse(r#"
///     version = 1
///     routes = ["route.softmax:f32:e8:k2"]
///     combines = ["combine:f16>f16:h7168:k2:weighted"]
///     quantisers = ["quantise:f16:k7168:own"]
///
///     [problems]
///     ## experts
///     "grouped8.dual_gemm.silu:f16*nvfp4>f16:n2048:k7168:prepared" = "1..=8192"
///     ## attention: decoding, and one prompt length
///     "gemm:f16*nvfp4>f16:n7168:k2048:prepared" = ["1..=256", "4096"]
/// "#)?;
/// assert_eq!(manifest.problems().count(), 2);
/// assert_eq!(Manifest::parse(&manifest.to_string())?, manifest);
/// # Ok::<(), warpsmith::Error>(())
/// ```
///
/// A stated range of M in a problem's spelling (`:m512`) is no part of a kernel and is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// By spelling, so that a change of one problem changes one line.
    problems: BTreeMap<String, (Problem, Rows)>,
    routes: BTreeMap<String, Route>,
    combines: BTreeMap<String, Combine>,
    experts: BTreeMap<String, Experts>,
    quantisers: BTreeMap<String, Quantise>,
}

impl Manifest {
    /// Nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds rows to those that a problem will be asked for.
    #[must_use]
    pub fn with(mut self, problem: &Problem, rows: &Rows) -> Self {
        let problem = problem.for_pick();
        let (_, known) = self.problems.entry(problem.to_string()).or_insert_with(|| (problem, Rows::default()));
        *known = std::mem::take(known).and(rows);
        self
    }

    /// Adds a router.
    #[must_use]
    pub fn with_route(mut self, route: &Route) -> Self {
        self.routes.insert(route.to_string(), *route);
        self
    }

    /// Adds a combiner.
    #[must_use]
    pub fn with_combine(mut self, combine: &Combine) -> Self {
        self.combines.insert(combine.to_string(), *combine);
        self
    }

    fn with_experts(mut self, experts: &Experts) -> Self {
        self.experts.insert(experts.to_string(), *experts);
        self
    }

    /// Adds a quantiser.
    #[must_use]
    pub fn with_quantiser(mut self, quantise: &Quantise) -> Self {
        self.quantisers.insert(quantise.to_string(), *quantise);
        self
    }

    /// Adds all that another names.
    #[must_use]
    pub fn and(self, other: &Manifest) -> Self {
        let all = other.problems().fold(self, |all, (problem, rows)| all.with(problem, rows));
        other.simts().fold(all, |all, simt| all.with_simt(&simt))
    }

    /// Reads a manifest.
    ///
    /// # Errors
    /// Parse; the text shows the line and what is wrong with the value: TOML, version, the spelling or extents of a problem, a
    /// router, a combiner or a quantiser, rows.
    pub fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).map_err(|error| Error::parse(format!("manifest: {}", error.to_string().trim_end())))
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Data, if it cannot be read; those of [`Manifest::parse`].
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let read = std::fs::read_to_string(path).map_err(|error| Error::data(error.to_string()).with_source(error));
        read.and_then(|text| Self::parse(&text)).map_err(|error| error.context(path.display().to_string()))
    }

    /// Writes a file, as [`file::write`] does.
    ///
    /// # Errors
    /// Data, if it cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        file::write(path, self.to_string())
    }

    /// The problems, by spelling, each with its rows.
    pub fn problems(&self) -> impl Iterator<Item = (&Problem, &Rows)> {
        self.problems.values().map(|(problem, rows)| (problem, rows))
    }

    /// The routers, by spelling.
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.values()
    }

    /// The combiners, by spelling.
    pub fn combines(&self) -> impl Iterator<Item = &Combine> {
        self.combines.values()
    }

    /// The quantisers, by spelling.
    pub fn quantisers(&self) -> impl Iterator<Item = &Quantise> {
        self.quantisers.values()
    }

    /// All but problems.
    pub(crate) fn simts(&self) -> impl Iterator<Item = Simt> {
        let (routes, combines) = (self.routes().copied().map(Simt::from), self.combines().copied().map(Simt::from));
        let experts = self.experts.values().copied().map(Simt::from);
        routes.chain(combines).chain(experts).chain(self.quantisers().copied().map(Simt::from))
    }

    /// Adds one of those. Weights are prepared as problems say.
    pub(crate) fn with_simt(self, simt: &Simt) -> Self {
        match simt {
            Simt::Route(route) => self.with_route(route),
            Simt::Combine(combine) => self.with_combine(combine),
            Simt::Experts(experts) => self.with_experts(experts),
            Simt::Quantise(quantise) => self.with_quantiser(quantise),
            Simt::Prepare(_) | Simt::QuantiseWeights(_) => self,
        }
    }

    /// The rows of a problem, if it is in.
    #[must_use]
    pub fn rows(&self, problem: &Problem) -> Option<&Rows> {
        self.problems.get(&problem.for_pick().to_string()).map(|(_, rows)| rows)
    }
}

impl fmt::Display for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&toml::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for Manifest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

#[derive(Serialize)]
struct Written<'a> {
    version: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    combines: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    experts: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    quantisers: Vec<&'a str>,
    problems: BTreeMap<&'a str, &'a Rows>,
}

impl Serialize for Manifest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let problems = self.problems.iter().map(|(spelling, (_, rows))| (spelling.as_str(), rows)).collect();
        let routes = self.routes.keys().map(String::as_str).collect();
        let combines = self.combines.keys().map(String::as_str).collect();
        let experts = self.experts.keys().map(String::as_str).collect();
        let quantisers = self.quantisers.keys().map(String::as_str).collect();
        Written { version: VERSION, routes, combines, experts, quantisers, problems }.serialize(serializer)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    #[serde(rename = "version")]
    _version: Version,
    #[serde(default)]
    routes: Vec<Legal<Route>>,
    #[serde(default)]
    combines: Vec<Legal<Combine>>,
    #[serde(default)]
    experts: Vec<Legal<Experts>>,
    #[serde(default)]
    quantisers: Vec<Legal<Quantise>>,
    #[serde(default)]
    problems: HashMap<Legal<Problem>, Rows>,
}

impl<'de> Deserialize<'de> for Manifest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = Read::deserialize(deserializer)?;
        // Several keys may be of one problem, with different limits of M.
        let mut problems: BTreeMap<String, (Problem, Vec<Rows>)> = BTreeMap::new();
        for (Legal(problem), rows) in read.problems {
            let problem = problem.for_pick();
            problems.entry(problem.to_string()).or_insert_with(|| (problem, Vec::new())).1.push(rows);
        }
        let merged = problems.into_iter().map(|(spelling, (problem, rows))| (spelling, (problem, Rows::all(&rows))));
        let manifest = Self { problems: merged.collect(), ..Self::default() };
        let manifest = read.routes.iter().fold(manifest, |all, Legal(route)| all.with_route(route));
        let manifest = read.combines.iter().fold(manifest, |all, Legal(combine)| all.with_combine(combine));
        let manifest = read.experts.iter().fold(manifest, |all, Legal(experts)| all.with_experts(experts));
        Ok(read.quantisers.iter().fold(manifest, |all, Legal(quantise)| all.with_quantiser(quantise)))
    }
}

/// The version that this reads.
struct Version;

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer)? {
            VERSION => Ok(Self),
            other => Err(serde::de::Error::custom(format!("version {other}: this reads version {VERSION}"))),
        }
    }
}

/// What is legal, as far as that does not depend on the architecture.
#[derive(PartialEq, Eq, Hash)]
struct Legal<T>(T);

trait Check {
    fn check(&self) -> Result<()>;
}

impl Check for Problem {
    fn check(&self) -> Result<()> {
        self.check()
    }
}

impl Check for Route {
    fn check(&self) -> Result<()> {
        self.check()
    }
}

impl Check for Combine {
    fn check(&self) -> Result<()> {
        self.check()
    }
}

impl Check for Experts {
    fn check(&self) -> Result<()> {
        self.check()
    }
}

impl Check for Quantise {
    fn check(&self) -> Result<()> {
        self.check()
    }
}

impl<'de, T: Deserialize<'de> + Check> Deserialize<'de> for Legal<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let one = T::deserialize(deserializer)?;
        one.check().map_err(serde::de::Error::custom)?;
        Ok(Self(one))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::time::{ClockId, clock_gettime};

    use super::*;
    use crate::spec::Activation;

    const ONE: &str = "\"gemm:f16*nvfp4>f16:n64:k64\"";

    /// That the thread has run.
    fn own_time() -> Duration {
        clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
    }

    fn text(lines: &str) -> String {
        format!("version = 1\n[problems]\n{lines}\n")
    }

    #[test]
    fn round_trips_and_merges() {
        let problem = Problem::dual_gemm(Activation::Silu).n(4096).k(7168).prepared();
        let rows = |text: &str| text.parse::<Rows>().unwrap();
        let manifest = Manifest::new()
            .with(&problem.m_up_to(512), &rows("1..=64"))
            .with(&problem, &rows("4096, 32..=128"))
            .with(&Problem::gemm().n(64).k(64), &rows("7"));
        let expected = text(
            "\"dual_gemm.silu:f16*nvfp4>f16:n4096:k7168:prepared\" = [\"1..=128\", \"4096\"]\n\
             \"gemm:f16*nvfp4>f16:n64:k64\" = \"7\"",
        );
        assert_eq!(manifest.to_string().replace("\n\n", "\n"), expected);
        assert_eq!(manifest.to_string().parse::<Manifest>().unwrap(), manifest);
        assert_eq!(manifest.rows(&problem).unwrap().to_string(), "1..=128, 4096");
        let json = serde_json::to_string(&manifest).unwrap();
        assert_eq!(serde_json::from_str::<Manifest>(&json).unwrap(), manifest, "any serde format will do");

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.toml");
        manifest.save(&path).unwrap();
        assert_eq!(Manifest::load(&path).unwrap(), manifest);
        assert_eq!(dir.path().read_dir().unwrap().count(), 1, "nothing else is left behind");

        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        Manifest::new().save(&link).unwrap();
        assert!(link.is_symlink() && Manifest::load(&path).unwrap() == Manifest::new());
    }

    #[test]
    fn small_kernels_are_lists_and_each_once() {
        const BESIDE: &str = "routes = [\"route.given:e8:k2\", \"route.softmax:f32:e8:k2\"]\n\
                              combines = [\"combine:f16>f16:h64:k2:weighted\"]\n\
                              experts = [\"experts.silu:f16:h64:i64:route.given:e8:k2\"]\n\
                              quantisers = [\"quantise:f16:k64\"]\n";
        let (route, combine) = ("route.softmax:f32:e8:k2", "combine:f16>f16:h64:k2:weighted");
        let own = Manifest::new().with_route(&route.parse().unwrap()).with_combine(&combine.parse().unwrap());
        let other = own.clone().with_route(&"route.given:e8:k2".parse().unwrap());
        let other = other.with_quantiser(&"quantise:f16:k64".parse().unwrap());
        let other = other.with_experts(&"experts.silu:f16:h64:i64:route.given:e8:k2".parse().unwrap());
        let manifest = own.and(&other).and(&Manifest::parse(&text(&format!("{ONE} = \"7\""))).unwrap());
        let expected = format!("version = 1\n{BESIDE}\n[problems]\n{ONE} = \"7\"\n");
        assert_eq!((manifest.to_string(), Manifest::parse(&expected).unwrap()), (expected, manifest));
    }

    #[test]
    fn numbers_and_lists_are_rows() {
        let manifest = Manifest::parse(&text(&format!("{ONE} = [8, \"16..=32\", 17]"))).unwrap();
        assert_eq!(manifest.problems().next().unwrap().1.to_string(), "8, 16..=32");
        assert_eq!(Manifest::parse("version = 1").unwrap(), Manifest::new());
    }

    /// As a text, as a list, and, of some of them, as keys of one problem.
    #[test]
    fn a_hundred_thousand_ranges_take_no_time() {
        const RANGES: u32 = 100_000;
        const KEYS: u32 = 10_000;
        let ranges = |quote: &str| {
            // Backwards, so that they are not in order by luck.
            let ranges = (1..=RANGES).rev().map(|at| format!("{quote}{}..={}{quote}", 3 * at, 3 * at + 1));
            ranges.collect::<Vec<_>>().join(", ")
        };
        let keys = (1..=KEYS).map(|at| format!("\"gemm:f16*nvfp4>f16:n64:k64:m{at}\" = {}", 3 * at));
        let texts = [
            (format!("{ONE} = \"{}\"", ranges("")), RANGES),
            (format!("{ONE} = [{}]", ranges("\"")), RANGES),
            (keys.collect::<Vec<_>>().join("\n"), KEYS),
        ];
        for (lines, count) in texts {
            let text = text(&lines);
            // The thread's own time, and the best of some: others use the machine, too.
            let best = (0..5).map(|_| {
                let start = own_time();
                let manifest = Manifest::parse(&text).unwrap();
                let (_, rows) = manifest.problems().next().unwrap();
                assert_eq!((manifest.problems().count(), rows.ranges().count()), (1, count as usize));
                let found = (1..=3 * count + 2).filter(|m| rows.contains(*m)).count();
                assert_eq!(found as u32, if count == RANGES { 2 * count } else { count });
                own_time() - start
            });
            let best = best.min().unwrap();
            assert!(best < Duration::from_millis(500), "{best:?} for {}", &lines[..60]);
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, line, value) in [
            ("version = 2".to_owned(), 1, "version 2"),
            ("[problems]".to_owned(), 1, "version"),
            ("version = 1\nkernels = 3".to_owned(), 2, "kernels"),
            (text("\n\"gemm:f16*nvfp4>f16:n64\" = \"1\""), 4, "gemm:f16*nvfp4>f16:n64"),
            (text("\"gemm:f16*nvfp4>f16:n65:k64\" = \"1\""), 3, "N = 65"),
            (text("\"gemm:f16*nvfp4>f16:n64:k64:m0\" = \"1\""), 3, "M = 0"),
            (text(&format!("{ONE} = \"1..9\"")), 3, "`1..9`"),
            (text(&format!("{ONE} = \"0\"")), 3, "0..=0"),
            (text(&format!("{ONE} = -3")), 3, "-3 rows"),
            (text(&format!("{ONE} = []")), 3, "no rows"),
            (text(&format!("{ONE} = 1.5")), 3, "1.5"),
            (text(&format!("{ONE} = \"1\"\n{ONE} = \"2\"")), 4, "duplicate"),
            (text("gemm"), 3, "gemm"),
            ("version = 1\nroutes = [\"route.softmax:f32:e8:k9\"]".to_owned(), 2, "k = 9"),
            ("version = 1\nroutes = [\"route.softmax\"]".to_owned(), 2, "route.softmax"),
            ("version = 1\ncombines = [\"combine:f16>f16:h63:k2\"]".to_owned(), 2, "63"),
            ("version = 1\nexperts = [\"experts.silu:f16:h63:i64:route.given:e8:k2\"]".to_owned(), 2, "hidden = 63"),
        ] {
            let error = Manifest::parse(&text).unwrap_err();
            let shown = error.to_string();
            assert!(error.is_parse() && shown.contains(value), "{text}: {shown}");
            assert!(shown.contains(&format!("line {line}")), "{text}: {shown}");
        }
        let error = Manifest::load("/no/such/file.toml").unwrap_err();
        assert!(error.is_data() && error.to_string().starts_with("/no/such/file.toml: "), "{error}");
    }
}
