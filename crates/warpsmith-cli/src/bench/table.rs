//! What is shown: a line a kernel, as soon as it is known; and the same for machines.

use serde_json::{Value, json};
use warpsmith::pick::Choice;
use warpsmith_tune::Timing;

use super::ceilings::Ceilings;
use crate::shared::list::Item;

/// One kernel on one problem, or why there is none.
pub struct Row {
    item: Item,
    choice: Option<Choice>,
    outcome: Outcome,
}

/// How far it came.
pub enum Outcome {
    /// No device: compiled only.
    Compiled {
        /// Registers of the matrix kernel, if the image tells.
        registers: Option<u32>,
    },
    /// Every element is right.
    Passed(Box<Measured>),
    /// There is none, or it could not be built, loaded or launched.
    Failed(String),
    /// Its result is wrong.
    Wrong(String),
}

/// What was found of a kernel that is right.
pub struct Measured {
    /// The largest error over its bound: at most 1.
    pub worst: f64,
    /// One call after the other.
    pub plain: Timing,
    /// Each call may begin while the one before it ends.
    pub dependent: Timing,
    pub ceilings: Ceilings,
}

impl Row {
    /// A row; `choice` is missing if no variant is legal.
    pub fn new(item: &Item, choice: Option<Choice>, outcome: Outcome) -> Self {
        Self { item: item.clone(), choice, outcome }
    }

    /// Whether its result is wrong.
    pub fn is_wrong(&self) -> bool {
        matches!(self.outcome, Outcome::Wrong(_))
    }

    /// Whether there is nothing to judge.
    pub fn has_failed(&self) -> bool {
        matches!(self.outcome, Outcome::Failed(_))
    }

    fn variant(&self) -> Option<String> {
        Some(self.choice?.spec().variant().to_string())
    }

    /// Its line of the table.
    pub fn line(&self) -> String {
        let cells = match &self.outcome {
            Outcome::Compiled { registers } => {
                let registers = registers.map_or("?".to_owned(), |registers| registers.to_string());
                return self.padded(&["-", "-", "-", "-", "-"]) + &format!("  compiled, {registers} registers");
            }
            Outcome::Failed(why) => {
                let verdict = if self.choice.is_some() { "FAILED" } else { "REFUSED" };
                return self.padded(&[verdict, "-", "-", "-", "-"]) + &format!("  {why}");
            }
            Outcome::Wrong(why) => return self.padded(&["WRONG", "-", "-", "-", "-"]) + &format!("  {why}"),
            Outcome::Passed(found) => {
                let floor = found.ceilings.floor_us(&self.item.problem, &self.item.rows);
                let us = |timing: &Timing| format!("{:.2} ±{:.1}%", timing.median_us, 50.0 * timing.spread());
                let share = |timing: &Timing| format!("{:.1}%", 100.0 * floor / timing.median_us);
                [
                    format!("{:.3}", found.worst),
                    us(&found.plain),
                    us(&found.dependent),
                    format!("{floor:.2}"),
                    format!("{} / {}", share(&found.plain), share(&found.dependent)),
                ]
            }
        };
        self.padded(&cells.each_ref().map(String::as_str))
    }

    fn padded(&self, cells: &[&str; 5]) -> String {
        let (problem, m) = (self.item.problem.to_string(), self.item.m().to_string());
        let variant = self.variant().unwrap_or_else(|| "-".to_owned());
        let [worst, plain, dependent, floor, share] = *cells;
        padded(&[&problem, &m, worst, plain, dependent, floor, share, &variant])
    }

    /// Its object in JSON; docs/measurements/ratios.py finds other libraries' by op, M, N and K.
    pub fn json(&self) -> Value {
        let Item { op, problem, rows } = &self.item;
        let m = if problem.groups().is_some() { json!(rows) } else { json!(self.item.m()) };
        let mut row = json!({
            "op": op,
            "M": m,
            "N": problem.columns(),
            "K": problem.depth(),
            "problem": problem.to_string(),
            "a": problem.a_format().to_string(),
            "c": problem.c_format().to_string(),
            "variant": self.variant(),
            "origin": self.choice.map(|choice| choice.origin().to_string()),
        });
        let more = match &self.outcome {
            Outcome::Compiled { .. } => json!({}),
            Outcome::Failed(why) | Outcome::Wrong(why) => json!({ "warpsmith_fail": why }),
            Outcome::Passed(found) => {
                let m = self.item.m();
                json!({
                    "warpsmith": found.plain.median_us,
                    "warpsmith_pdl": found.dependent.median_us,
                    "spread": found.plain.spread(),
                    "spread_pdl": found.dependent.spread(),
                    "worst": found.worst,
                    "floor_us": found.ceilings.floor_us(problem, rows),
                    "floor_mem": found.ceilings.memory_us(problem, rows),
                    "floor_mma": found.ceilings.matrix_us(problem, m),
                })
            }
        };
        if let (Some(row), Value::Object(more)) = (row.as_object_mut(), more) {
            row.extend(more);
        }
        row
    }

    /// Plain and dependent µs.
    fn us(&self) -> Option<[f64; 2]> {
        match &self.outcome {
            Outcome::Passed(found) => Some([found.plain.median_us, found.dependent.median_us]),
            _ => None,
        }
    }
}

/// The line above the rows.
pub fn head() -> String {
    padded(&["problem", "M", "err/bound", "µs plain", "µs dependent", "floor µs", "of floor", "variant"])
}

fn padded(cells: &[&str; 8]) -> String {
    let [problem, m, worst, plain, dependent, floor, share, variant] = *cells;
    format!("{problem:<59}  {m:>5}  {worst:<9}  {plain:<14}  {dependent:<14}  {floor:>8}  {share:<15}  {variant}")
}

/// What a second product costs: for each grouped dual problem its time over that of the plain one, each with its
/// fastest variant.
pub fn dual_over_plain(rows: &[Row]) -> Vec<String> {
    let fastest = |op: &str, like: &Item| {
        let same = |row: &&Row| {
            let (a, b) = (&row.item.problem, &like.problem);
            row.item.op == op && row.item.rows == like.rows && (a.columns(), a.depth()) == (b.columns(), b.depth())
        };
        rows.iter().filter(same).filter_map(Row::us).reduce(|best, us| [best[0].min(us[0]), best[1].min(us[1])])
    };
    let mut seen: Vec<&Item> = Vec::new();
    for row in rows.iter().filter(|row| row.item.op == "grouped_dual") {
        let is_new = |item: &&Item| item.problem == row.item.problem && item.rows == row.item.rows;
        if !seen.iter().any(is_new) {
            seen.push(&row.item);
        }
    }
    let line = |item: &&Item| {
        let ([plain, plain_dependent], [dual, dual_dependent]) =
            (fastest("grouped", item)?, fastest("grouped_dual", item)?);
        let (problem, m) = (&item.problem, item.m());
        let (ratio, dependent) = (dual / plain, dual_dependent / plain_dependent);
        Some(format!("{problem} M={m}: {ratio:.2}× the plain product, {dependent:.2}× as dependent launches"))
    };
    seen.iter().filter_map(line).collect()
}

/// Everything, for machines: the ceilings and then the rows.
pub fn json(rows: &[Row], machine: &str, steady: bool, ceilings: Option<&Ceilings>) -> Value {
    let ceilings = ceilings.map(|ceilings| {
        json!({
            "op": "ceilings",
            "machine": machine,
            "steady": steady,
            "copy_gb_s": ceilings.copy / 1e9,
            "read_gb_s": ceilings.read / 1e9,
            "launch_us": ceilings.launch_us,
            "product_tflops": ceilings.products.map(|[f16, _]| f16.flop_per_s / 1e12),
            "product_ghz": ceilings.products.map(|[f16, _]| f16.clock_hz / 1e9),
            "product_e4m3_tflops": ceilings.products.map(|[_, e4m3]| e4m3.flop_per_s / 1e12),
            "product_e4m3_ghz": ceilings.products.map(|[_, e4m3]| e4m3.clock_hz / 1e9),
        })
    });
    ceilings.into_iter().chain(rows.iter().map(Row::json)).collect()
}
