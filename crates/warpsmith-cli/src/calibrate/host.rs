//! The host's part of a problem: weights once, tokens and results for every M.

use warpsmith::spec::Problem;
use warpsmith_tune::oracle::Reference;
use warpsmith_tune::{HostMatrix, HostOperands, Shape, Spread, reference};

use crate::shared::Result;

/// Operands and results of a problem, for each of its M.
pub struct Host {
    pub pairs: Vec<Pair>,
}

/// Of one M.
pub struct Pair {
    pub operands: HostOperands,
    pub reference: Reference,
}

impl Host {
    /// Random operands as in the public benchmark; every M has the first rows of the same tokens.
    pub fn new(problem: &Problem, rows: &[Vec<u32>]) -> Result<Self> {
        let most = rows.iter().max_by_key(|rows| rows.iter().sum::<u32>()).ok_or("a problem without M")?;
        let whole = HostOperands::random(problem, most, Spread::Uniform, 0x5EED);
        let all = if problem.groups().is_none() { Some(reference::of(&whole)?) } else { None };
        let pair = |rows: &Vec<u32>| -> Result<Pair> {
            let operands = first_rows(&whole, rows)?;
            let reference = match &all {
                // Rows do not know of each other.
                Some(all) => all.of_rows(&(0..operands.m as usize).map(Some).collect::<Vec<_>>()),
                None => reference::of(&operands)?,
            };
            Ok(Pair { operands, reference })
        };
        Ok(Self { pairs: rows.iter().map(pair).collect::<Result<_>>()? })
    }
}

/// The operands with fewer tokens, for groups of these rows.
fn first_rows(whole: &HostOperands, rows: &[u32]) -> Result<HostOperands> {
    let m: u32 = rows.iter().sum();
    let Shape { layout, k, factors: each, .. } = whole.a_shape();
    let elements = m as usize * k;
    let a = match &whole.a {
        HostMatrix::F16(values) => HostMatrix::F16(values[..elements].to_vec()),
        HostMatrix::Bf16(values) => HostMatrix::Bf16(values[..elements].to_vec()),
        HostMatrix::Nvfp4 { codes, scales } => {
            // Linear scales: rows lie one after the other, as codes do.
            let scales = scales[..layout.bytes(m as usize, k)].to_vec();
            HostMatrix::Nvfp4 { codes: codes[..elements / 2].to_vec(), scales }
        }
        HostMatrix::E4m3 { values, factors } => {
            HostMatrix::E4m3 { values: values[..elements].to_vec(), factors: factors[..m as usize * each].to_vec() }
        }
        other => return Err(format!("tokens in {}", other.format()).into()),
    };
    let ends = rows.iter().scan(0i32, |end, rows| {
        *end += *rows as i32;
        Some(*end)
    });
    let offsets = whole.offsets.as_ref().map(|_| std::iter::once(0).chain(ends).collect());
    Ok(HostOperands { m, offsets, a, ..whole.clone() })
}
