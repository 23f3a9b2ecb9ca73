//! What the proposals are tried on: the four dual GEMMs of the public NVFP4 benchmark, and its four grouped shapes, plain
//! and dual.

use warpsmith::format::Format;
use warpsmith::internal::spec::baseline;
use warpsmith::spec::{Arch, Problem, Spec};
use warpsmith_tune::suite::Suite;
use warpsmith_tune::{HostOperands, Spread};

use crate::shared::Result;
use crate::shared::list::{self, Item, Part};

/// A problem with its rows.
pub struct Case {
    /// What kind of problem it is: dual, grouped, grouped_dual, or how it is spelled.
    pub kind: String,
    /// Short, for the head of a column.
    pub label: String,
    pub problem: Problem,
    /// Of each group; one number if there are none.
    pub rows: Vec<u32>,
}

impl Case {
    fn new(item: Item, tokens: Format) -> Self {
        let problem = item.problem.a(tokens);
        let (m, n, k) = (item.m(), problem.columns(), problem.depth());
        let groups = problem.groups().map_or(String::new(), |groups| format!("{groups}:"));
        Self { kind: item.op, label: format!("{groups}{m}·{n}·{k}"), problem, rows: item.rows }
    }

    /// Rows of all groups.
    pub fn m(&self) -> u32 {
        self.rows.iter().sum()
    }

    /// The debate's baseline for it.
    pub fn baseline(&self, arch: &Arch) -> warpsmith::Result<Spec> {
        Spec::new(&self.problem, &baseline(&self.problem), arch)
    }

    /// Random operands as in the benchmark, always the same.
    pub fn operands(&self) -> HostOperands {
        HostOperands::random(&self.problem, &self.rows, Spread::Uniform, 0xDEBA7E + u64::from(self.m()))
    }
}

/// The built-in cases, with weights prepared where the fastest kernels take them so.
pub fn cases(tokens: Format, prepared: bool) -> Result<Vec<Case>> {
    let dual = Suite::built_in()?.run.into_iter().filter(|case| case.is("benchmark")).map(|case| {
        let problem = case.problem.a(Format::F16);
        Item::new(if prepared { problem.prepared() } else { problem }, case.rows)
    });
    let dual = dual.collect::<Result<Vec<_>>>()?;
    let grouped = list::list(&[Part::Grouped], prepared)?;
    Ok(dual.into_iter().chain(grouped).map(|item| Case::new(item, tokens)).collect())
}

/// One's own problems.
pub fn own(problems: &[Problem], rows: impl Fn(&Problem) -> Result<Vec<u32>>) -> Result<Vec<Case>> {
    problems.iter().map(|problem| Ok(Case::new(Item::new(*problem, rows(problem)?)?, problem.a_format()))).collect()
}
