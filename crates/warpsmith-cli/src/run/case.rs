//! What is to be run: problems with their operands, and the variants for each.

use warpsmith::format::Format;
use warpsmith::internal::spec::{baseline, space};
use warpsmith::pick::{Choice, Picker};
use warpsmith::spec::{Problem, Variant};
use warpsmith_tune::{HostOperands, Spread};

use super::args::Args;
use super::safetensors_io::{self, Wanted};
use crate::shared::Result;
use crate::shared::{self, rows};
use warpsmith_tune::suite::Suite;

/// A problem, where its operands come from, and the variants to run.
pub struct Case {
    pub problem: Problem,
    pub m: u32,
    /// Why it is in the suite.
    pub why: Option<String>,
    pub choices: Vec<Choice>,
    input: Input,
}

enum Input {
    Random { rows: Vec<u32>, spread: Spread },
    File(Box<HostOperands>),
}

impl Case {
    /// Rows of each group; one number if there are none.
    pub fn rows(&self) -> Vec<u32> {
        match &self.input {
            Input::File(operands) => operands.groups().into_iter().map(|rows| rows.len() as u32).collect(),
            Input::Random { rows, .. } => rows.clone(),
        }
    }

    /// The operands; random ones are made anew, the same every time.
    pub fn operands(&self) -> HostOperands {
        match &self.input {
            Input::File(operands) => HostOperands::clone(operands),
            Input::Random { rows, spread } => {
                HostOperands::random(&self.problem, rows, *spread, 0x5EED + u64::from(self.m))
            }
        }
    }
}

/// What the command line asks for.
pub fn cases(args: &Args, picker: &Picker) -> Result<Vec<Case>> {
    if let Some(path) = &args.operands {
        let wanted = Wanted { scales: args.scales, activation: args.act, c: args.c };
        let mut operands = safetensors_io::read(path, wanted)?;
        operands.problem = prepared(args, operands.problem, picker);
        let (problem, m) = (operands.problem, operands.m);
        let choices = choices(args, &problem, m, picker)?;
        return Ok(vec![Case { problem, m, why: None, choices, input: Input::File(Box::new(operands)) }]);
    }
    if let Some(problem) = args.problem {
        let rows = rows(&problem, &args.m)?;
        return Ok(vec![random_case(args, problem, rows, Spread::Every, None, picker)?]);
    }
    let case = |case: warpsmith_tune::suite::Case| {
        let problem = prepared(args, case.problem, picker);
        random_case(args, problem, case.rows, case.spread, case.why, picker)
    };
    Suite::built_in()?.run.into_iter().map(case).collect()
}

/// The problem with its weights prepared, where the fastest kernels take them so.
fn prepared(args: &Args, problem: Problem, picker: &Picker) -> Problem {
    let wanted = shared::prepares(picker.arch()) && problem.b_format() == Format::Nvfp4 && !args.unprepared;
    if wanted { problem.prepared() } else { problem }
}

fn random_case(
    args: &Args,
    problem: Problem,
    rows: Vec<u32>,
    spread: Spread,
    why: Option<String>,
    picker: &Picker,
) -> Result<Case> {
    let m = rows.iter().sum();
    let choices = choices(args, &problem, m, picker)?;
    Ok(Case { problem, m, why, choices, input: Input::Random { rows, spread } })
}

/// One choice, or those named, or with `--variants all` the baseline and then every other legal variant.
fn choices(args: &Args, problem: &Problem, m: u32, picker: &Picker) -> Result<Vec<Choice>> {
    let pinned = |variant: &Variant| Ok(Choice::pinned(problem, variant, picker.arch())?);
    if !args.variant.is_empty() {
        return args.variant.iter().map(pinned).collect();
    }
    if args.variants.is_none() {
        return Ok(vec![picker.choose(problem, m)?]);
    }
    let baseline = baseline(problem);
    let others = space(problem, picker.arch()).map(|spec| *spec.variant()).filter(|variant| *variant != baseline);
    std::iter::once(baseline).chain(others.step_by(args.every.max(1))).map(|variant| pinned(&variant)).collect()
}
