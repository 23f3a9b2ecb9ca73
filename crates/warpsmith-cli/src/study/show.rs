//! The report as text.

use std::collections::BTreeSet;

use super::proposals::{KEEP, PROPOSALS, REVERT, SHARED_PER_SM};
use super::report::{CaseLine, Cell, GroundReport, ProposalReport, Report, Resources, ValueReport};
use super::verdict::{Against, Summary};

/// The cases, each with the letter that heads its column.
pub fn cases(report: &Report) -> Vec<String> {
    let line = |(index, case): (usize, &CaseLine)| {
        format!("  {}  {}  {:<18}  M = {:?}", letter(index), padded(&case.kind, 12), case.label, case.rows)
            + &format!("  {}", case.problem)
    };
    report.cases.iter().enumerate().map(line).collect()
}

/// The rules that decide.
pub fn rules() -> String {
    let kib = SHARED_PER_SM / 1024;
    format!(
        "rules: at least {KEEP:.1}× stays, below {REVERT:.1}× goes, between somebody judges; less than {kib} KiB of shared \
         memory an SM; right on every problem"
    )
}

/// One proposal on one ground: a line a value.
pub fn proposal(ground: &str, report: &ProposalReport, cases: usize) -> Vec<String> {
    let claim = promise(report.claim);
    let letters: String = (0..cases).map(|index| format!("{:>6}", letter(index))).collect();
    let head = format!(
        "  {}  {:>6}  {letters}  {}  {}",
        padded(&format!("instead of {}", report.from), 24),
        "all",
        padded("registers, shared memory (block, SM), blocks, occupancy", 60),
        "by the rules"
    );
    let title = format!("{}, {ground}: {claim}", report.proposal);
    [title, head].into_iter().chain(report.values.iter().map(line)).collect()
}

fn line(value: &ValueReport) -> String {
    let cells: String = value.cells.iter().map(|cell| format!("{:>6}", short(cell))).collect();
    let all = speed_up(value.summary.speed_up);
    let (resources, verdict) = (padded(&resources(value), 60), verdict(&value.summary));
    format!("  {}  {all:>6}  {cells}  {resources}  {verdict}", padded(&value.value, 24))
}

fn short(cell: &Cell) -> String {
    match cell {
        Cell::NotApplicable => String::new(),
        Cell::Refused { .. } => "-".to_owned(),
        Cell::Built { .. } => "built".to_owned(),
        Cell::Failed { .. } => "FAIL".to_owned(),
        Cell::Wrong { .. } => "WRONG".to_owned(),
        Cell::Measured(measured) => format!("{:.2}", measured.speed_up),
    }
}

/// What is behind the table: limits that refuse, and kernels that fail.
pub fn notes(report: &ProposalReport) -> Vec<String> {
    let note = |value: &ValueReport, cell: &Cell| match cell {
        Cell::Refused { limit } => Some(format!("  {}: not legal: {limit}", value.value)),
        Cell::Failed { why, .. } | Cell::Wrong { why, .. } => Some(format!("  {}: {why}", value.value)),
        _ => None,
    };
    let notes = report.values.iter().flat_map(|value| value.cells.iter().filter_map(move |cell| note(value, cell)));
    let mut seen = BTreeSet::new();
    notes.filter(|note| seen.insert(note.clone())).collect()
}

/// What the kernels of a value take of an SM, from the least to the most.
pub fn resources(value: &ValueReport) -> String {
    let found: Vec<_> = value.cells.iter().filter_map(Cell::resources).collect();
    let span = |places: usize, of: &dyn Fn(&Resources) -> f64| {
        let numbers = || found.iter().map(|resources| of(resources));
        let text = |number: f64| format!("{number:.places$}");
        let least = text(numbers().fold(f64::INFINITY, f64::min));
        let most = text(numbers().fold(0.0, f64::max));
        if least == most { most } else { format!("{least}–{most}") }
    };
    if found.is_empty() {
        return "-".to_owned();
    }
    format!(
        "{} a thread, {} KiB, {} KiB, {}, {} %",
        span(0, &|resources| resources.registers.into()),
        span(0, &|resources| f64::from(resources.shared) / 1024.0),
        span(0, &|resources| f64::from(resources.shared_per_sm) / 1024.0),
        span(0, &|resources| resources.blocks_per_sm.into()),
        span(1, &|resources| resources.occupancy_percent),
    )
}

/// What the rules say.
pub fn verdict(summary: &Summary) -> String {
    let decision = summary.decision.map_or("-".to_owned(), |decision| decision.to_string());
    let against = match summary.against_claim {
        None => "",
        Some(Against::Below) => "; less than promised",
        Some(Against::Within) => "; as promised",
        Some(Against::Above) => "; more than promised",
    };
    format!("{decision}: {}{against}", summary.reason)
}

/// Every proposal with its best value on every ground.
pub fn overview(report: &Report) -> Vec<String> {
    let column = |ground: &GroundReport| format!("{:<34}", ground.ground);
    let columns: String = report.grounds.iter().map(column).collect();
    let head = format!("  {:<20}{:<12}{columns}", "", "promised");
    let lines = PROPOSALS.iter().map(|proposal| {
        let claim = proposal.claim.map_or("-".to_owned(), range);
        let of = |ground: &GroundReport| padded(&best(ground, proposal.name), 34);
        let best: String = report.grounds.iter().map(of).collect();
        format!("  {:<20}{}{best}", proposal.name, padded(&claim, 12))
    });
    std::iter::once(head).chain(lines).collect()
}

/// The best value of a proposal on a ground, with what the rules say of it.
pub fn best(ground: &GroundReport, name: &str) -> String {
    let found = ground.proposals.iter().find(|report| report.proposal == name).and_then(ProposalReport::best);
    found.map_or("-".to_owned(), |value| {
        let decision = value.summary.decision.map_or(String::new(), |decision| format!(", {decision}"));
        format!("{} ({}{decision})", speed_up(value.summary.speed_up), value.value)
    })
}

/// What was promised, and whether the rules would have it.
pub fn promise(claim: Option<(f64, f64)>) -> String {
    let Some((low, high)) = claim else { return "nothing promised".to_owned() };
    let even_so = if high < REVERT { ", which the rules would take back even if it were kept" } else { "" };
    format!("{} promised{even_so}", range((low, high)))
}

/// `1.50–1.80×`.
pub fn range((low, high): (f64, f64)) -> String {
    format!("{low:.2}–{high:.2}×")
}

/// `1.23×`, or nothing.
pub fn speed_up(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.2}×"))
}

/// `a` for the first case.
pub fn letter(index: usize) -> String {
    let letter = u8::try_from(index).ok().filter(|index| *index < 26).map(|index| char::from(b'a' + index));
    letter.map_or_else(|| (index + 1).to_string(), String::from)
}

/// At the left of so many places; `format!` counts characters, too, but pads only what implements it.
fn padded(text: &str, width: usize) -> String {
    format!("{text:<width$}")
}
