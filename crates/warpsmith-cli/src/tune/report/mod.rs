//! A tuning as a report: what was chosen and on what evidence, how near it is to the device's ceilings, and how good the
//! predictions were. Plain data in, a page out.

mod choices;
mod roofline;
mod scatter;

use serde::{Deserialize, Serialize};
use warpsmith::spec::Arch;

use crate::shared::chart::Failure;
use crate::shared::page::{Page, Section};

/// A tuning of several problems.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The device and its driver.
    pub machine: String,
    /// What was asked for, and what came of it as a whole; a sentence each.
    pub lines: Vec<String>,
    pub ceilings: Ceilings,
    pub rows: Vec<Row>,
}

/// What the device can do at most.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    pub memory_bytes_per_s: f64,
    pub matrix_flop_per_s: f64,
    /// In this run; else the architecture's numbers.
    pub measured: bool,
}

/// One problem at one M.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// What kind of problem it is called in the lists.
    pub kind: String,
    pub problem: String,
    /// Rows of all groups.
    pub m: u32,
    /// What was chosen.
    pub variant: String,
    /// On what grounds: won, tie, inconclusive …
    pub source: String,
    /// Of what was chosen.
    pub predicted_us: Option<f64>,
    /// Of what was chosen; none if nothing was measured.
    pub measured_us: Option<f64>,
    /// How many times as fast as the heuristic's pick it is, and as the baseline.
    pub over_heuristic: Option<f64>,
    pub over_baseline: Option<f64>,
    /// The width of the interval that the first of these is in, as a share of it.
    pub spread: Option<f64>,
    /// That the problem moves at least, and that it computes.
    pub bytes: f64,
    pub flop: f64,
    /// Of the architecture's matrix instructions for what it multiplies.
    pub matrix_flop_per_s: f64,
    /// Seconds that tuning took, and that the device rested of them.
    pub seconds: f64,
    pub rested: f64,
    /// Everything that was tried.
    pub candidates: Vec<Candidate>,
}

/// One kernel that was tried.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Candidate {
    pub variant: String,
    pub predicted_us: Option<f64>,
    pub measured_us: Option<f64>,
    /// Why it was not measured, or not considered.
    pub refused: Option<String>,
}

impl Row {
    /// Floating-point operations for each byte of memory.
    fn intensity(&self) -> f64 {
        self.flop / self.bytes
    }

    /// Floating-point operations in a second.
    fn flop_per_s(&self) -> Option<f64> {
        self.measured_us.map(|us| self.flop / us * 1e6)
    }

    /// The share of what the device's ceilings allow.
    fn share(&self, ceilings: &Ceilings) -> Option<f64> {
        let own = Ceilings { matrix_flop_per_s: self.matrix_flop_per_s, ..*ceilings };
        self.flop_per_s().map(|rate| rate / own.at(self.intensity()))
    }
}

impl Ceilings {
    /// As the architecture's row has them.
    pub fn of(arch: &Arch) -> Self {
        let (memory_bytes_per_s, matrix_flop_per_s) = (arch.memory_bytes_per_s(), arch.matrix_flop_per_s());
        Self { memory_bytes_per_s, matrix_flop_per_s, measured: false }
    }

    /// Floating-point operations in a second at most, at so many for each byte.
    fn at(&self, intensity: f64) -> f64 {
        (self.memory_bytes_per_s * intensity).min(self.matrix_flop_per_s)
    }
}

impl Report {
    /// The report as a page.
    ///
    /// # Errors
    /// The plotting library's.
    pub fn page(&self) -> Result<Page, Failure> {
        let mut sections = vec![self.roofline()?, choices::section(self)];
        let mut problems: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !problems.contains(&row.problem.as_str()) {
                problems.push(&row.problem);
            }
        }
        for problem in problems {
            let rows: Vec<&Row> = self.rows.iter().filter(|row| row.problem == problem).collect();
            sections.push(of_problem(problem, &rows)?);
        }
        let lines = std::iter::once(&self.machine).chain(&self.lines).cloned().collect();
        Ok(Page { title: "Tuning".to_owned(), lines, sections })
    }

    fn roofline(&self) -> Result<Section, Failure> {
        let Ceilings { memory_bytes_per_s, matrix_flop_per_s, measured } = self.ceilings;
        let whence = if measured { "measured in this run" } else { "from the table of architectures" };
        let (memory, matrix) = (memory_bytes_per_s / 1e12, matrix_flop_per_s / 1e12);
        let line = format!("Ceilings, {whence}: {memory:.2} TB/s, {matrix:.0} TFLOP/s.");
        let points: Vec<(f64, f64)> =
            self.rows.iter().filter_map(|row| Some((row.intensity(), row.flop_per_s()?))).collect();
        let figures = if points.is_empty() { Vec::new() } else { vec![roofline::chart(&self.ceilings, &points)?] };
        Ok(Section { title: "Roofline".to_owned(), lines: vec![line], figures, tables: Vec::new() })
    }
}

/// What was tried for one problem.
fn of_problem(problem: &str, rows: &[&Row]) -> Result<Section, Failure> {
    let series: Vec<_> = rows.iter().filter_map(|row| scatter::series(row)).collect();
    let figures = if series.is_empty() { Vec::new() } else { vec![scatter::chart(&series)?] };
    let tables = rows.iter().map(|row| choices::candidates(row)).collect();
    Ok(Section { title: problem.to_owned(), figures, tables, ..Section::default() })
}
