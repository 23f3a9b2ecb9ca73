//! One proposal on one ground: which kernels are compared, and what came of it.

use std::collections::HashMap;

use warpsmith::spec::{Arch, Operation, Refusal, Spec};

use super::built::Built;
use super::cases::Case;
use super::nearest::{self, Pair, Shape};
use super::proposals::{Ground, Proposal, Value};
use super::report::{Cell, Measured, ProposalReport, Resources, ValueReport};
use super::verdict;
use crate::shared::{Result, bar};

/// What came of a kernel.
pub type Found = std::result::Result<Timed, Fault>;

/// Why a kernel was not timed: a sentence.
#[derive(Clone, Debug)]
pub enum Fault {
    /// It could not be loaded or launched.
    Failed(String),
    /// Its result is not right.
    Wrong(String),
}

impl Fault {
    /// The cell of `variant` that this kernel, the variant's or what it is compared with, leaves without times.
    fn cell(self, variant: String, of: &Spec) -> Cell {
        let told = |why: &str| format!("{}: {why}", of.variant());
        match self {
            Self::Failed(why) => Cell::Failed { variant, why: told(&why) },
            Self::Wrong(why) => Cell::Wrong { variant, why: told(&why) },
        }
    }
}

/// A kernel that is right.
#[derive(Clone, Debug)]
pub struct Timed {
    /// Microseconds a call, one number a turn; turns of kernels that were timed together can be compared.
    pub us: Vec<f64>,
    /// The largest error over its bound.
    pub worst: f64,
    /// Blocks that an SM holds, by the driver.
    pub blocks_per_sm: u32,
}

/// Checks kernels of one case, by its place among them, and times those that are right in turn.
pub type Clock<'a> = dyn FnMut(usize, &[Spec]) -> Result<HashMap<Spec, Found>> + 'a;

/// What is to be compared for one value on one case.
enum Planned {
    NotApplicable,
    Refused(Refusal),
    Pair(Box<Pair>),
}

/// What is to be compared.
pub struct Experiment {
    name: &'static str,
    claim: Option<(f64, f64)>,
    from: String,
    values: Vec<String>,
    /// For every value, in the order of the cases.
    plan: Vec<Vec<Planned>>,
}

impl Experiment {
    /// A proposal with the other axes as in `shapes`, one for each case.
    pub fn new(proposal: &Proposal, ground: Ground, shapes: &[Shape], cases: &[Case], arch: &Arch) -> Self {
        let own = (ground == Ground::Pick).then_some(Value::Own);
        let values: Vec<Value> = proposal.to.iter().copied().chain(own).collect();
        let planned = |value: Value, case: &Case, shape: &Shape| {
            let is_fusion = matches!(proposal.from, Value::Fusion(_));
            if is_fusion && matches!(case.problem.operation(), Operation::Gemm(_)) {
                return Planned::NotApplicable;
            }
            let pair = nearest::pair(&case.problem, arch, shape, (proposal.from, value), proposal.control);
            pair.map_or_else(Planned::Refused, |pair| Planned::Pair(Box::new(pair)))
        };
        let row = |value: &Value| cases.iter().zip(shapes).map(|(case, shape)| planned(*value, case, shape)).collect();
        Self {
            name: proposal.name,
            claim: proposal.claim,
            from: proposal.from.to_string(),
            plan: values.iter().map(row).collect(),
            values: values.iter().map(Value::to_string).collect(),
        }
    }

    /// Whole kernels against others, all of them legal: for each name one kernel a case.
    pub fn whole(claim: Option<(f64, f64)>, (from, controls): (&str, &[Spec]), values: &[(&str, &[Spec])]) -> Self {
        let pairs = |changed: &[Spec]| {
            let pairs = controls.iter().zip(changed).map(|(control, changed)| (*control, *changed));
            pairs.map(|(control, changed)| Planned::Pair(Box::new(Pair { control, changed }))).collect()
        };
        Self {
            name: "all together",
            claim,
            from: from.to_owned(),
            plan: values.iter().map(|(_, changed)| pairs(changed)).collect(),
            values: values.iter().map(|(name, _)| (*name).to_owned()).collect(),
        }
    }

    /// Every kernel that it needs.
    pub fn specs(&self) -> impl Iterator<Item = Spec> {
        self.plan.iter().flatten().filter_map(Planned::pair).flat_map(|pair| [pair.control, pair.changed])
    }

    /// The kernels of a value, case by case; none for those where there is none.
    pub fn changed(&self, value: &str) -> impl Iterator<Item = Option<Spec>> {
        let row = self.values.iter().position(|name| name == value).and_then(|index| self.plan.get(index));
        row.into_iter().flatten().map(|planned| planned.pair().map(|pair| pair.changed))
    }

    /// Compares, if there is anything to do it by.
    pub fn run(&self, cases: &[Case], built: &Built, mut clock: Option<&mut Clock<'_>>) -> Result<ProposalReport> {
        let mut columns: Vec<Vec<Cell>> = Vec::new();
        let progress = bar(cases.len(), self.name);
        for index in 0..cases.len() {
            let column: Vec<&Planned> = self.plan.iter().filter_map(|row| row.get(index)).collect();
            let found = match &mut clock {
                Some(clock) => Some(clock(index, &launchable(&column, built))?),
                None => None,
            };
            columns.push(column.iter().map(|planned| cell(planned, built, found.as_ref())).collect());
            progress.inc(1);
        }
        progress.finish_and_clear();
        // From columns of values to rows of cases.
        let mut columns: Vec<_> = columns.into_iter().map(Vec::into_iter).collect();
        let has_times = clock.is_some();
        let value = |name: &String| {
            let cells: Vec<Cell> = columns.iter_mut().filter_map(Iterator::next).collect();
            let of_kinds: Vec<_> = cases.iter().map(|case| case.kind.as_str()).zip(&cells).collect();
            let summary = verdict::summary(&of_kinds, self.claim, has_times);
            ValueReport { value: name.clone(), summary, cells }
        };
        let values = self.values.iter().map(value).collect();
        Ok(ProposalReport { proposal: self.name, claim: self.claim, from: self.from.clone(), values })
    }
}

impl Planned {
    fn pair(&self) -> Option<&Pair> {
        match self {
            Planned::Pair(pair) => Some(pair),
            _ => None,
        }
    }
}

/// The kernels of pairs that were built.
fn launchable(planned: &[&Planned], built: &Built) -> Vec<Spec> {
    let specs = planned.iter().filter_map(|planned| planned.pair()).flat_map(|pair| [pair.control, pair.changed]);
    specs.filter(|spec| built.failure(spec).is_none()).collect()
}

/// `found` is none without a device.
fn cell(planned: &Planned, built: &Built, found: Option<&HashMap<Spec, Found>>) -> Cell {
    let pair = match planned {
        Planned::NotApplicable => return Cell::NotApplicable,
        Planned::Refused(refusal) => return Cell::Refused { limit: refusal.to_string() },
        Planned::Pair(pair) => pair,
    };
    let (variant, control) = (pair.changed.variant().to_string(), pair.control.variant().to_string());
    for spec in [&pair.changed, &pair.control] {
        if let Some(why) = built.failure(spec) {
            return Fault::Failed(why).cell(variant, spec);
        }
    }
    let Some(found) = found else {
        return Cell::Built { resources: built.resources(&pair.changed, None), variant, control };
    };
    match (timed(found, &pair.changed), timed(found, &pair.control)) {
        (Ok(changed), Ok(before)) => {
            let resources = built.resources(&pair.changed, Some(changed.blocks_per_sm));
            Cell::Measured(compared(variant, changed, control, before, resources))
        }
        (Err((spec, fault)), _) | (_, Err((spec, fault))) => fault.cell(variant, spec),
    }
}

/// What a kernel took; else whose fault it is.
fn timed<'a>(found: &'a HashMap<Spec, Found>, spec: &'a Spec) -> std::result::Result<&'a Timed, (&'a Spec, Fault)> {
    match found.get(spec) {
        Some(Ok(timed)) => Ok(timed),
        Some(Err(fault)) => Err((spec, fault.clone())),
        None => Err((spec, Fault::Failed("not measured".to_owned()))),
    }
}

fn compared(
    variant: String,
    changed: &Timed,
    control: String,
    before: &Timed,
    resources: Option<Resources>,
) -> Measured {
    let ratios = sorted(before.us.iter().zip(&changed.us).map(|(before, after)| before / after));
    let middle = |us: &[f64]| at(&sorted(us.iter().copied()), 0.5);
    Measured {
        us: middle(&changed.us),
        control_us: middle(&before.us),
        speed_up: at(&ratios, 0.5),
        low: at(&ratios, 0.05),
        high: at(&ratios, 0.95),
        worst: changed.worst,
        variant,
        control,
        resources,
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The value below which a share of the sorted ones is; NaN if there are none.
fn at(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((share * last as f64).round() as usize).copied().unwrap_or(f64::NAN)
}
