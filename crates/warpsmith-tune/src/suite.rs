//! The problems that are run, timed, tuned and tested: `tests/suite.toml` of the workspace, which says what each word means.

use serde::Deserialize;
use warpsmith::format::Format;
use warpsmith::internal::{Raise, SUITE};
use warpsmith::spec::Problem;
use warpsmith::{Error, Result};

use crate::Spread;

/// The whole of it.
#[derive(Clone, Debug)]
pub struct Suite {
    /// What `run` shows.
    pub run: Vec<Case>,
    /// What `bench` and `tune` go through.
    pub bench: Vec<Case>,
    /// Whose picks are compiled by tests, beside those.
    pub picks: Vec<Case>,
    /// What tests combine.
    pub words: Words,
}

/// A problem with its rows.
#[derive(Clone, Debug)]
pub struct Case {
    /// With weights as they are given.
    pub problem: Problem,
    /// Of each group; one number if there are none.
    pub rows: Vec<u32>,
    /// What `bench` calls it.
    pub kind: Option<String>,
    /// Why `run` has it.
    pub why: Option<String>,
    /// Its random operands.
    pub spread: Spread,
    /// What else it is.
    pub tags: Vec<String>,
}

/// Words that tests combine with each other.
#[derive(Clone, Debug)]
pub struct Words {
    /// Formats of A and B.
    pub operands: Vec<(Format, Format)>,
    /// N and K.
    pub shapes: Vec<(u32, u32)>,
    /// Rows.
    pub m: Vec<u32>,
}

impl Case {
    /// Rows of all groups.
    #[must_use]
    pub fn m(&self) -> u32 {
        self.rows.iter().sum()
    }

    /// Whether it has this tag.
    #[must_use]
    pub fn is(&self, tag: &str) -> bool {
        self.tags.iter().any(|own| own == tag)
    }
}

impl Suite {
    /// The suite of this workspace.
    ///
    /// # Errors
    /// Data, if the file is not as it says; parse, if a problem is none.
    pub fn built_in() -> Result<Self> {
        let file: File = toml::from_str(SUITE).map_err(|error| Error::data("tests/suite.toml").with_source(error))?;
        let cases = |lines: Vec<Line>| -> Result<Vec<Case>> {
            Ok(lines.into_iter().map(Line::cases).collect::<Result<Vec<_>>>()?.concat())
        };
        let pair = |text: String| -> Result<(Format, Format)> {
            let (a, b) = text.split_once('*').ok_or_else(|| Error::parse(format!("`{text}`: expected A*B")))?;
            Ok((a.parse()?, b.parse()?))
        };
        let words = Words {
            operands: file.words.operands.into_iter().map(pair).collect::<Result<_>>()?,
            shapes: file.words.shapes,
            m: file.words.m,
        };
        Ok(Self { run: cases(file.run)?, bench: cases(file.bench)?, picks: cases(file.picks)?, words })
    }

    /// Every case.
    pub fn cases(&self) -> impl Iterator<Item = &Case> {
        self.run.iter().chain(&self.bench).chain(&self.picks)
    }

    /// Every problem once, with the M that it is asked for.
    #[must_use]
    pub fn problems(&self) -> Vec<(Problem, Vec<u32>)> {
        let mut problems: Vec<(Problem, Vec<u32>)> = Vec::new();
        for case in self.cases() {
            let known = problems.iter_mut().find(|(problem, _)| *problem == case.problem);
            match known {
                None => problems.push((case.problem, vec![case.m()])),
                Some((_, ms)) if ms.contains(&case.m()) => {}
                Some((_, ms)) => ms.push(case.m()),
            }
        }
        problems
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    run: Vec<Line>,
    bench: Vec<Line>,
    picks: Vec<Line>,
    words: WordsAsText,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WordsAsText {
    operands: Vec<String>,
    shapes: Vec<(u32, u32)>,
    m: Vec<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    problem: String,
    #[serde(default)]
    m: Vec<u32>,
    #[serde(default)]
    rows: Vec<u32>,
    kind: Option<String>,
    run: Option<String>,
    #[serde(default)]
    scales: Scales,
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Scales {
    #[default]
    Uniform,
    Every,
}

impl Line {
    fn cases(self) -> Result<Vec<Case>> {
        let problem: Problem = self.problem.parse()?;
        let (groups, spread) = (
            problem.groups().unwrap_or(1),
            match self.scales {
                Scales::Uniform => Spread::Uniform,
                Scales::Every => Spread::Every,
            },
        );
        let rows: Vec<Vec<u32>> = match (&self.m[..], &self.rows[..]) {
            (ms @ [_, ..], []) => ms.iter().map(|m| crate::even_rows(&problem, *m)).collect::<Result<_>>()?,
            ([], rows) if rows.len() == groups as usize => vec![rows.to_vec()],
            _ => {
                return Err(Error::data(format!(
                    "tests/suite.toml: {problem}: expected m, or rows of {groups} groups"
                )));
            }
        };
        let case = |rows| Case {
            problem,
            rows,
            kind: self.kind.clone(),
            why: self.run.clone(),
            spread,
            tags: self.tags.clone(),
        };
        Ok(rows.into_iter().map(case).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suite_is_read() {
        let suite = Suite::built_in().unwrap();
        assert!(suite.run.iter().all(|case| case.why.is_some()) && suite.bench.iter().all(|case| case.kind.is_some()));
        assert_eq!(suite.run.iter().filter(|case| case.is("benchmark")).count(), 4);
        assert!(suite.cases().all(|case| case.problem.check().is_ok() && !case.problem.is_prepared() && case.m() > 0));
        assert!(suite.problems().len() > 20 && suite.words.operands.len() == 7);
    }
}
