//! What is timed: problems with their rows, as data.

use warpsmith::format::Format;
use warpsmith::spec::{Activation, Problem};

/// M, N, K of the dual GEMMs: decoding one sequence to filling a context.
pub const DUAL: [(u32, u32, u32); 14] = [
    (1, 4096, 7168),
    (8, 4096, 7168),
    (16, 4096, 7168),
    (32, 4096, 7168),
    (40, 7168, 2048),
    (64, 4096, 7168),
    (128, 4096, 7168),
    (192, 3072, 4096),
    (248, 4096, 7168),
    (256, 4096, 7168),
    (512, 4096, 7168),
    (256, 3072, 4096),
    (512, 3072, 7168),
    (1024, 4096, 7168),
];

/// Rows of each group, N and K (public NVFP4 grouped-GEMM benchmark shapes).
pub const GROUPED: [(&[u32], u32, u32); 4] = [
    (&[80, 176, 128, 72, 64, 248, 96, 160], 4096, 7168),
    (&[40, 76, 168, 72, 164, 148, 196, 160], 7168, 2048),
    (&[192, 320], 3072, 4096),
    (&[128, 384], 4096, 1536),
];

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

/// A kind of problem: its name in JSON, its part of the list, whether it is of groups, and its problem but for those.
struct Kind {
    op: &'static str,
    part: Part,
    is_grouped: bool,
    problem: fn(u32, u32) -> Problem,
}

const KINDS: [Kind; 7] = [
    Kind { op: "dual", part: Part::Dual, is_grouped: false, problem: dual },
    Kind { op: "grouped", part: Part::Grouped, is_grouped: true, problem: plain },
    Kind { op: "grouped_dual", part: Part::Grouped, is_grouped: true, problem: dual },
    Kind { op: "dual_nvfp4", part: Part::Nvfp4, is_grouped: false, problem: |n, k| dual(n, k).a(Format::Nvfp4) },
    Kind { op: "grouped_nvfp4", part: Part::Nvfp4, is_grouped: true, problem: |n, k| plain(n, k).a(Format::Nvfp4) },
    Kind { op: "grouped_dual_nvfp4", part: Part::Nvfp4, is_grouped: true, problem: |n, k| dual(n, k).a(Format::Nvfp4) },
    Kind {
        op: "dual_bf16",
        part: Part::Bf16,
        is_grouped: false,
        problem: |n, k| dual(n, k).a(Format::Bf16).c(Format::Bf16),
    },
];

fn plain(n: u32, k: u32) -> Problem {
    Problem::gemm().n(n).k(k)
}

fn dual(n: u32, k: u32) -> Problem {
    Problem::dual_gemm(Activation::Silu).n(n).k(k)
}

impl Kind {
    fn problem_of(&self, groups: Option<u32>, n: u32, k: u32) -> Problem {
        let problem = (self.problem)(n, k);
        if self.is_grouped { problem.grouped(groups.unwrap_or(1)) } else { problem }
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
    pub fn new(problem: Problem, rows: Vec<u32>) -> Self {
        let is_of = |kind: &&Kind| {
            let listed = kind.problem_of(problem.groups(), problem.columns(), problem.depth());
            problem == listed || problem == listed.prepared()
        };
        let op = KINDS.iter().find(is_of).map_or_else(|| problem.to_string(), |kind| kind.op.to_owned());
        Self { op, problem, rows }
    }

    /// Rows of all groups.
    pub fn m(&self) -> u32 {
        self.rows.iter().sum()
    }
}

/// The built-in list, or these parts of it, with weights prepared or as they are given.
pub fn list(parts: &[Part], prepared: bool) -> Vec<Item> {
    let kinds = KINDS.iter().filter(|kind| parts.is_empty() || parts.contains(&kind.part));
    kinds.flat_map(|kind| of_kind(kind, prepared)).collect()
}

fn of_kind(kind: &Kind, prepared: bool) -> Vec<Item> {
    let item = |rows: &[u32], groups, n, k| {
        let problem = kind.problem_of(groups, n, k);
        let problem = if prepared { problem.prepared() } else { problem };
        Item { op: kind.op.to_owned(), problem, rows: rows.to_vec() }
    };
    if kind.is_grouped {
        return GROUPED.iter().map(|(rows, n, k)| item(rows, Some(rows.len() as u32), *n, *k)).collect();
    }
    DUAL.iter().map(|(m, n, k)| item(&[*m], None, *n, *k)).collect()
}
