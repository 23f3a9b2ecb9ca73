//! What will be asked for: problems, each with its M. Written by hand, or recorded from traffic.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

use super::rows::Rows;
use crate::error::{Error, Result};
use crate::file;
use crate::spec::Problem;

/// The only version there is.
const VERSION: u32 = 1;

/// The closed world of a warm-up: problems, each with the numbers of rows that it will be asked for.
///
/// As text it is TOML, a line a problem, in the spellings of [`Problem`] and [`Rows`]:
///
/// ```
/// use warpsmith::engine::Manifest;
/// let manifest = Manifest::parse(r#"
///     version = 1
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

    /// Reads a manifest.
    ///
    /// # Errors
    /// Parse; the text shows the line and what is wrong with the value: TOML, version, a problem's spelling or extents,
    /// rows.
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

    /// The rows of a problem, if it is in.
    #[must_use]
    pub fn rows(&self, problem: &Problem) -> Option<&Rows> {
        self.problems.get(&problem.for_pick().to_string()).map(|(_, rows)| rows)
    }
}

impl fmt::Display for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problems = self.problems.iter().map(|(spelling, (_, rows))| (spelling.as_str(), rows)).collect();
        f.write_str(&toml::to_string(&Written { version: VERSION, problems }).map_err(|_| fmt::Error)?)
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
    problems: BTreeMap<&'a str, &'a Rows>,
}

impl Serialize for Manifest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let problems = self.problems.iter().map(|(spelling, (_, rows))| (spelling.as_str(), rows)).collect();
        Written { version: VERSION, problems }.serialize(serializer)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    #[serde(rename = "version")]
    _version: Version,
    #[serde(default)]
    problems: HashMap<Legal, Rows>,
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
        Ok(Self { problems: merged.collect() })
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

/// A problem that is legal, as far as that does not depend on the architecture.
#[derive(PartialEq, Eq, Hash)]
struct Legal(Problem);

impl<'de> Deserialize<'de> for Legal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let problem = Problem::deserialize(deserializer)?;
        problem.check().map_err(serde::de::Error::custom)?;
        Ok(Self(problem))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::spec::Activation;

    const ONE: &str = "\"gemm:f16*nvfp4>f16:n64:k64\"";

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
            // The best of some: others use the machine, too.
            let best = (0..5).map(|_| {
                let start = Instant::now();
                let manifest = Manifest::parse(&text).unwrap();
                let (_, rows) = manifest.problems().next().unwrap();
                assert_eq!((manifest.problems().count(), rows.ranges().count()), (1, count as usize));
                let found = (1..=3 * count + 2).filter(|m| rows.contains(*m)).count();
                assert_eq!(found as u32, if count == RANGES { 2 * count } else { count });
                start.elapsed()
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
