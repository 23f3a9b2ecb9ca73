//! What is timed and tuned: problems of the suite with their rows.

use warpsmith::spec::Problem;
use warpsmith_tune::suite::{Case, Suite};

use super::Result;

/// A part of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Dual GEMMs, f16 tokens.
    Dual,
    /// Grouped GEMMs, plain and dual, f16 tokens.
    Grouped,
    /// All of these, NVFP4 tokens.
    Nvfp4,
    /// Dual GEMMs, bf16 tokens and results.
    Bf16,
}

impl Part {
    /// Which part a kind of problem is of.
    fn of(kind: &str) -> Self {
        match kind {
            kind if kind.ends_with("_nvfp4") => Self::Nvfp4,
            kind if kind.ends_with("_bf16") => Self::Bf16,
            kind if kind.starts_with("grouped") => Self::Grouped,
            _ => Self::Dual,
        }
    }
}

/// A problem and its rows.
#[derive(Clone, Debug)]
pub struct Item {
    /// What it is called in JSON.
    pub op: String,
    pub problem: Problem,
    /// Of each group; one number if there are none.
    pub rows: Vec<u32>,
}

impl Item {
    /// A problem of one's own. It is called as in the list if it is of a kind that is there, else as it is spelled.
    pub fn new(problem: Problem, rows: Vec<u32>) -> Result<Self> {
        let is_of = |case: &&Case| {
            let listed = case.problem.n(problem.columns()).k(problem.depth());
            let listed = match (listed.groups(), problem.groups()) {
                (Some(_), Some(groups)) => listed.grouped(groups),
                _ => listed,
            };
            problem == listed || problem == listed.prepared()
        };
        let bench = Suite::built_in()?.bench;
        let kind = bench.iter().find(is_of).and_then(|case| case.kind.clone());
        Ok(Self { op: kind.unwrap_or_else(|| problem.to_string()), problem, rows })
    }

    /// Rows of all groups.
    pub fn m(&self) -> u32 {
        self.rows.iter().sum()
    }
}

/// The built-in list, or these parts of it, with weights prepared or as they are given.
pub fn list(parts: &[Part], prepared: bool) -> Result<Vec<Item>> {
    let item = |case: Case| {
        let op = case.kind.filter(|kind| parts.is_empty() || parts.contains(&Part::of(kind)))?;
        let problem = if prepared { case.problem.prepared() } else { case.problem };
        Some(Item { op, problem, rows: case.rows })
    };
    Ok(Suite::built_in()?.bench.into_iter().filter_map(item).collect())
}
