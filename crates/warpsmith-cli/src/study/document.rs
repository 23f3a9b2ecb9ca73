//! The report as a page.

use super::chart::{self, Group};
use super::proposals::PROPOSALS;
use super::report::{Cell, ProposalReport, Report, ValueReport};
use super::show;
use super::verdict::Decision;
use crate::shared::chart::Failure;
use crate::shared::page::{Figure, Page, Section, Table, Weight};

/// The page of a report.
///
/// # Errors
/// The plotting library's.
pub fn page(report: &Report) -> Result<Page, Failure> {
    let launches = if report.dependent { "dependent launches" } else { "plain launches" };
    let how = if report.measured {
        format!("{launches}, {} turns each, operands not in the L2 cache; every kernel was checked first", report.turns)
    } else {
        "nothing was launched: no times".to_owned()
    };
    let mut sections = vec![overview(report)];
    let mut named: Vec<&str> = Vec::new();
    for proposal in report.grounds.iter().flat_map(|ground| &ground.proposals) {
        if !named.contains(&proposal.proposal) {
            named.push(proposal.proposal);
            sections.push(section(report, proposal.proposal)?);
        }
    }
    sections.push(cases(report));
    Ok(Page {
        title: "Claimed and measured".to_owned(),
        lines: vec![report.machine.clone(), how, show::rules()],
        sections,
    })
}

/// Every proposal with its best value on every ground.
fn overview(report: &Report) -> Section {
    let grounds = report.grounds.iter().map(|ground| ground.ground);
    let columns: Vec<String> = ["<proposal".to_owned(), "promised".to_owned()]
        .into_iter()
        .chain(grounds.map(|name| format!("<{name}")))
        .collect();
    let mut table = Table::new(columns.iter().map(String::as_str));
    for proposal in &PROPOSALS {
        let claim = proposal.claim.map_or("-".to_owned(), show::range);
        let best = report.grounds.iter().map(|ground| show::best(ground, proposal.name));
        table.row(Weight::Plain, [proposal.name.to_owned(), claim].into_iter().chain(best));
    }
    let meaning = report.grounds.iter().map(|ground| format!("{}: {}.", ground.ground, ground.meaning));
    Section {
        title: "The best value of each".to_owned(),
        lines: meaning.chain(["Geometric means over all problems.".to_owned()]).collect(),
        tables: vec![table],
        ..Section::default()
    }
}

/// One proposal on all grounds.
fn section(report: &Report, name: &str) -> Result<Section, Failure> {
    let of: Vec<(&str, &ProposalReport)> = report
        .grounds
        .iter()
        .flat_map(|ground| ground.proposals.iter().map(|proposal| (ground.ground, proposal)))
        .filter(|(_, proposal)| proposal.proposal == name)
        .collect();
    let claim = of.first().and_then(|(_, proposal)| proposal.claim);
    let from = of.first().map_or("", |(_, proposal)| &proposal.from);
    let figures = if report.measured { vec![figure(&of, claim)?] } else { Vec::new() };
    let tables = std::iter::once(values(report, &of));
    let tables = tables.chain(of.iter().map(|(ground, proposal)| kernels(report, ground, proposal))).collect();
    Ok(Section {
        title: name.to_owned(),
        lines: vec![format!("Instead of {from}: {}.", show::promise(claim))],
        figures,
        tables,
    })
}

fn figure(of: &[(&str, &ProposalReport)], claim: Option<(f64, f64)>) -> Result<Figure, Failure> {
    let mut groups: Vec<Group> = Vec::new();
    for (index, (_, proposal)) in of.iter().enumerate() {
        for value in &proposal.values {
            let place = groups.iter().position(|group| group.name == value.value).unwrap_or_else(|| {
                groups.push(Group { name: value.value.clone(), bars: vec![None; of.len()] });
                groups.len() - 1
            });
            groups[place].bars[index] = value.summary.speed_up;
        }
    }
    let series: Vec<&str> = of.iter().map(|(ground, _)| *ground).collect();
    let caption = "Geometric means of the speed-ups; no bar where a value is not right on every problem.";
    chart::bars(&series, &groups, claim, caption)
}

/// A row a value.
fn values(report: &Report, of: &[(&str, &ProposalReport)]) -> Table {
    let kinds = kinds(report);
    let names = ["<ground", "<value", "all"].into_iter().chain(kinds.iter().copied());
    let names = names.chain(["<registers, shared memory a block, an SM, blocks an SM, occupancy", "<by the rules"]);
    let mut table = Table::new(names);
    for (ground, proposal) in of {
        let best = proposal.best().map(|best| &best.value);
        for value in &proposal.values {
            let weight = match value.summary.decision {
                _ if best == Some(&value.value) => Weight::Strong,
                Some(Decision::Revert) => Weight::Weak,
                _ => Weight::Plain,
            };
            table.row(weight, row(ground, value, &kinds));
        }
    }
    table
}

fn row(ground: &str, value: &ValueReport, kinds: &[&str]) -> Vec<String> {
    let of_kind = kinds.iter().map(|kind| show::speed_up(value.summary.by_kind.get(*kind).copied()));
    let all = show::speed_up(value.summary.speed_up);
    let first = [(*ground).to_owned(), value.value.clone(), all];
    first.into_iter().chain(of_kind).chain([show::resources(value), show::verdict(&value.summary)]).collect()
}

/// A row a kernel.
fn kernels(report: &Report, ground: &str, proposal: &ProposalReport) -> Table {
    let mut table = Table::new([
        "<kernel",
        "<value",
        "<problem",
        "speed-up",
        "90 % of turns",
        "µs",
        "instead of µs",
        "error / bound",
        "registers",
        "KiB a block",
        "KiB an SM",
        "blocks an SM",
        "occupancy",
        "<instead of",
    ]);
    let mut rows = 0;
    for value in &proposal.values {
        for (case, cell) in report.cases.iter().zip(&value.cells) {
            let of = [value.value.clone(), format!("{} {}", case.kind, case.label)];
            if let Some((weight, [name, other], numbers)) = kernel(cell) {
                table.row(weight, [name].into_iter().chain(of).chain(numbers).chain([other]));
                rows += 1;
            }
        }
    }
    table.folded(format!("Every kernel, {ground}: {rows}"))
}

/// What a cell has to say in a row of its own: the kernel and what it is compared with, and numbers.
fn kernel(cell: &Cell) -> Option<(Weight, [String; 2], Vec<String>)> {
    let resources = cell.resources().map_or_else(
        || vec![String::new(); 5],
        |found| {
            vec![
                found.registers.to_string(),
                (found.shared / 1024).to_string(),
                (found.shared_per_sm / 1024).to_string(),
                found.blocks_per_sm.to_string(),
                format!("{:.1} %", found.occupancy_percent),
            ]
        },
    );
    let without_times = |text: &'static str| [text].into_iter().chain([""; 4]).map(str::to_owned);
    let (weight, times, names): (_, Vec<String>, _) = match cell {
        Cell::NotApplicable => return None,
        Cell::Refused { limit } => (Weight::Weak, without_times("not legal").collect(), [limit, ""]),
        Cell::Failed { variant, why } => (Weight::Strong, without_times("FAIL").collect(), [variant, why.as_str()]),
        Cell::Wrong { variant, why } => (Weight::Strong, without_times("WRONG").collect(), [variant, why.as_str()]),
        Cell::Built { variant, control, .. } => {
            (Weight::Plain, without_times("built").collect(), [variant, control.as_str()])
        }
        Cell::Measured(found) => {
            let times = vec![
                format!("{:.3}×", found.speed_up),
                format!("{:.3}–{:.3}", found.low, found.high),
                format!("{:.2}", found.us),
                format!("{:.2}", found.control_us),
                format!("{:.3}", found.worst),
            ];
            (Weight::Plain, times, [&found.variant, found.control.as_str()])
        }
    };
    Some((weight, names.map(str::to_owned), times.into_iter().chain(resources).collect()))
}

fn cases(report: &Report) -> Section {
    let mut table = Table::new(["<kind", "<M, N, K", "<rows of each group", "<problem"]);
    for case in &report.cases {
        let rows = format!("{:?}", case.rows);
        table.row(Weight::Plain, [case.kind.clone(), case.label.clone(), rows, case.problem.clone()]);
    }
    Section { title: "Problems".to_owned(), tables: vec![table], ..Section::default() }
}

/// Kinds of problems, each once.
fn kinds(report: &Report) -> Vec<&str> {
    let mut kinds: Vec<&str> = Vec::new();
    for case in &report.cases {
        if !kinds.contains(&case.kind.as_str()) {
            kinds.push(&case.kind);
        }
    }
    kinds
}
