//! Tables: what was chosen, and what was tried.

use super::{Candidate, Report, Row};
use crate::shared::page::{Section, Table, Weight};

/// Kernels of one M in a table at most.
const SHOWN: usize = 200;

/// What was chosen for every problem and M, with the evidence.
pub fn section(report: &Report) -> Section {
    let mut table = Table::new([
        "<problem",
        "M",
        "<chosen",
        "µs",
        "over the heuristic",
        "±",
        "over the baseline",
        "of the ceiling",
        "TFLOP/s",
        "predicted µs",
        "<why",
        "s",
        "s at rest",
        "<kind",
    ]);
    for row in &report.rows {
        let weight = if row.measured_us.is_some() { Weight::Plain } else { Weight::Weak };
        table.row(
            weight,
            [
                row.problem.clone(),
                row.m.to_string(),
                row.variant.clone(),
                us(row.measured_us),
                times(row.over_heuristic),
                row.spread.map_or_else(none, |spread| format!("{:.1} %", 50.0 * spread)),
                times(row.over_baseline),
                row.share(&report.ceilings).map_or_else(none, |share| format!("{:.0} %", 100.0 * share)),
                row.flop_per_s().map_or_else(none, |rate| format!("{:.0}", rate / 1e12)),
                us(row.predicted_us),
                row.source.clone(),
                format!("{:.1}", row.seconds),
                format!("{:.1}", row.rested),
                row.kind.clone(),
            ],
        );
    }
    Section { title: "Choices".to_owned(), tables: vec![table], ..Section::default() }
}

/// What was tried for one M, in a sentence.
fn tried(row: &Row) -> String {
    let refused = row.candidates.iter().filter(|candidate| candidate.refused.is_some()).count();
    let off: Vec<f64> = row.candidates.iter().filter_map(Candidate::off).collect();
    let tried = format!("M = {}: {} kernels tried, {refused} of them refused", row.m, row.candidates.len());
    if off.is_empty() {
        return format!("{tried}; no prediction beside a measurement.");
    }
    let mean = (off.iter().map(|off| off.ln().abs()).sum::<f64>() / off.len() as f64).exp();
    format!("{tried}; predictions were off by a factor of {mean:.2} in geometric mean.")
}

/// What was tried, the fastest first; of an exhaustive search not all, for which there is the JSON.
pub fn candidates(row: &Row) -> Table {
    let mut table =
        Table::new(["<kernel", "µs", "predicted µs", "predicted / measured", "<refused"]).folded(tried(row));
    let mut candidates: Vec<&Candidate> = row.candidates.iter().collect();
    let key = |candidate: &&Candidate| candidate.measured_us.unwrap_or(f64::INFINITY);
    candidates.sort_by(|a, b| key(a).total_cmp(&key(b)));
    for candidate in candidates.into_iter().take(SHOWN) {
        let weight = match candidate {
            Candidate { refused: Some(_), .. } => Weight::Weak,
            chosen if chosen.variant == row.variant => Weight::Strong,
            _ => Weight::Plain,
        };
        table.row(
            weight,
            [
                candidate.variant.clone(),
                us(candidate.measured_us),
                us(candidate.predicted_us),
                candidate.off().map_or_else(none, |off| format!("{off:.2}")),
                candidate.refused.clone().unwrap_or_default(),
            ],
        );
    }
    table
}

impl Candidate {
    /// Predicted over measured.
    fn off(&self) -> Option<f64> {
        Some(self.predicted_us? / self.measured_us?)
    }
}

fn us(us: Option<f64>) -> String {
    us.map_or_else(none, |us| format!("{us:.2}"))
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or_else(none, |ratio| format!("{ratio:.3}×"))
}

fn none() -> String {
    "-".to_owned()
}
