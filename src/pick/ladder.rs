//! The ladder of rules: each rung fixes one axis, from the problem and the device alone.

use super::{Choice, Origin};
use crate::error::Result;
use crate::spec::{Arch, Epilogue, Fusion, MatrixPath, Operation, Problem, Spec, Tile, Variant, Warps, baseline};

/// Splits of K at most: beyond, adding up the partial sums costs more than idle SMs do.
const SPLITS_MAX: u32 = 8;
/// A split of K has at least this many elements, so that its pipeline gets past its first stages.
const SPLIT_DEPTH: u32 = 512;

pub(super) fn choose(problem: &Problem, m: u32, arch: &Arch) -> Result<Choice> {
    let tokens = token_tile(problem, m);
    let columns = column_tile(problem, m, tokens, arch);
    let k = if tokens > 64 { 64 } else { 128 };
    let split_k = splits(problem, m, tokens, columns, arch);
    let mut variant = Variant {
        path: MatrixPath::Mma,
        tile: Tile { tokens, columns, k },
        stages: 4,
        fusion: match problem.operation() {
            Operation::Gemm => Fusion::Single,
            Operation::DualGemm(_) => Fusion::Interleaved,
        },
        warps: Warps::Uniform,
        epilogue: Epilogue::Direct,
        split_k,
    };
    // As many stages as shared memory holds, four at most.
    while variant.stages > 1 && Spec::check(problem, &variant, arch).is_err() {
        variant.stages -= 1;
    }
    match Spec::check(problem, &variant, arch) {
        Ok(spec) => {
            let blocks = blocks(problem, m, tokens, columns) * split_k;
            let reason = format!(
                "{blocks} blocks for {} SMs, {:.0} % of token rows used",
                arch.sms(),
                100.0 * f64::from(m) / f64::from(token_tiles(problem, m, tokens) * tokens)
            );
            Ok(Choice { spec, origin: Origin::Heuristic, reason })
        }
        Err(refusal) => {
            let spec = Spec::new(problem, &baseline(problem.operation()), arch)?;
            Ok(Choice { spec, origin: Origin::Fallback, reason: format!("{variant} is not legal: {refusal}") })
        }
    }
}

/// The smallest tile that holds the rows of one group, 128 at most.
fn token_tile(problem: &Problem, m: u32) -> u32 {
    let rows = m.div_ceil(problem.groups().unwrap_or(1)).max(1);
    rows.div_ceil(8).next_power_of_two().saturating_mul(8).min(128)
}

/// The widest tile that still gives every SM a block; the narrowest but one where none does.
fn column_tile(problem: &Problem, m: u32, tokens: u32, arch: &Arch) -> u32 {
    [128, 64].into_iter().find(|columns| blocks(problem, m, tokens, *columns) >= arch.sms()).unwrap_or(64)
}

/// Splits of K until every SM has a block.
fn splits(problem: &Problem, m: u32, tokens: u32, columns: u32, arch: &Arch) -> u32 {
    let mut splits = 1;
    while blocks(problem, m, tokens, columns) * splits < arch.sms()
        && splits < SPLITS_MAX
        && problem.depth() / (splits * 2) >= SPLIT_DEPTH
    {
        splits *= 2;
    }
    splits
}

fn blocks(problem: &Problem, m: u32, tokens: u32, columns: u32) -> u32 {
    token_tiles(problem, m, tokens) * problem.columns().div_ceil(columns)
}

/// Tiles of tokens that hold rows; for groups, as if all had the same number.
fn token_tiles(problem: &Problem, m: u32, tokens: u32) -> u32 {
    let groups = problem.groups().unwrap_or(1).max(1);
    m.div_ceil(groups).max(1).div_ceil(tokens) * groups.min(m.max(1))
}
