//! What was found, as data: tables, JSON and HTML are made of it.

use serde::Serialize;

use super::verdict::Summary;

/// Everything.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The device, or why there is none.
    pub machine: String,
    /// Whether kernels were launched and timed.
    pub measured: bool,
    /// Each call may begin while the one before it ends.
    pub dependent: bool,
    /// Times that kernels took turns.
    pub turns: u32,
    pub cases: Vec<CaseLine>,
    pub grounds: Vec<GroundReport>,
}

#[derive(Debug, Serialize)]
pub struct CaseLine {
    pub kind: String,
    pub label: String,
    pub problem: String,
    /// Of each group.
    pub rows: Vec<u32>,
}

/// All proposals with the other axes at one place.
#[derive(Debug, Serialize)]
pub struct GroundReport {
    pub ground: &'static str,
    pub meaning: &'static str,
    pub proposals: Vec<ProposalReport>,
}

#[derive(Debug, Serialize)]
pub struct ProposalReport {
    pub proposal: &'static str,
    /// The speed-up that was promised, from and to.
    pub claim: Option<(f64, f64)>,
    /// What it is compared with.
    pub from: String,
    pub values: Vec<ValueReport>,
}

/// One value of an axis on all cases.
#[derive(Debug, Serialize)]
pub struct ValueReport {
    pub value: String,
    /// In the order of the cases.
    pub cells: Vec<Cell>,
    pub summary: Summary,
}

/// One value on one case.
#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Cell {
    /// The axis does not exist for the problem.
    NotApplicable,
    /// Not legal, nor anything near it: the limit.
    Refused { limit: String },
    /// Built, not launched.
    Built { variant: String, control: String, resources: Option<Resources> },
    /// Not built, not loaded or not launched: a sentence.
    Failed { variant: String, why: String },
    /// Not right: a sentence.
    Wrong { variant: String, why: String },
    /// Right, and timed.
    Measured(Measured),
}

#[derive(Debug, Serialize)]
pub struct Measured {
    pub variant: String,
    pub us: f64,
    /// What it was compared with.
    pub control: String,
    pub control_us: f64,
    /// The median of control / variant over the turns, and between what nine tenths of the turns are.
    pub speed_up: f64,
    pub low: f64,
    pub high: f64,
    /// The largest error over its bound: at most 1.
    pub worst: f64,
    pub resources: Option<Resources>,
}

/// What a kernel takes of an SM.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Resources {
    /// Of a thread.
    pub registers: u32,
    pub spill_bytes: Option<u32>,
    /// Of a block.
    pub threads: u32,
    /// Of a block, in bytes.
    pub shared: u32,
    /// Blocks that an SM holds at a time.
    pub blocks_per_sm: u32,
    /// Of an SM, with so many blocks.
    pub registers_per_sm: u32,
    /// Of an SM, with so many blocks, in bytes.
    pub shared_per_sm: u32,
    /// Threads of an SM, of all that it could hold, in per cent.
    pub occupancy_percent: f64,
}

impl Cell {
    pub fn measured(&self) -> Option<&Measured> {
        match self {
            Cell::Measured(measured) => Some(measured),
            _ => None,
        }
    }

    pub fn resources(&self) -> Option<&Resources> {
        match self {
            Cell::Built { resources, .. } => resources.as_ref(),
            Cell::Measured(measured) => measured.resources.as_ref(),
            _ => None,
        }
    }
}

impl ProposalReport {
    /// The value that is fastest in geometric mean.
    pub fn best(&self) -> Option<&ValueReport> {
        let timed = self.values.iter().filter_map(|value| Some((value.summary.speed_up?, value)));
        // Of equal ones the first.
        let best = timed.reduce(|best, other| if other.0 > best.0 { other } else { best });
        best.map(|(_, value)| value)
    }
}
