//! The host's part of a problem: weights once, tokens and results for every M.

use std::mem;
use std::sync::{Mutex, PoisonError};

use warpsmith::spec::Problem;
use warpsmith_tune::oracle::Reference;
use warpsmith_tune::{HostMatrix, HostOperands, Shape, Spread, reference};

use crate::shared::Result;

/// Operands and results of a problem, for each of its M.
pub struct Host {
    /// With the tokens of one M at a time: weights of many experts are hundreds of megabytes.
    operands: Mutex<HostOperands>,
    pub pairs: Vec<Pair>,
}

/// Of one M.
pub struct Pair {
    tokens: Mutex<Tokens>,
    pub reference: Reference,
}

/// What operands have for an M.
struct Tokens {
    m: u32,
    offsets: Option<Vec<i32>>,
    a: HostMatrix,
}

impl Tokens {
    /// Those of the operands, and these in their place.
    fn swap(&mut self, operands: &mut HostOperands) {
        mem::swap(&mut self.m, &mut operands.m);
        mem::swap(&mut self.offsets, &mut operands.offsets);
        mem::swap(&mut self.a, &mut operands.a);
    }
}

impl Host {
    /// Random operands as in the public benchmark; every M has the first rows of the same tokens.
    pub fn new(problem: &Problem, rows: &[Vec<u32>]) -> Result<Self> {
        let most = rows.iter().max_by_key(|rows| rows.iter().sum::<u32>()).ok_or("a problem without M")?;
        let mut operands = HostOperands::random(problem, most, Spread::Uniform, 0x5EED);
        let all = if problem.groups().is_none() { Some(reference::of(&operands)?) } else { None };
        let first = rows.iter().map(|rows| first_rows(&operands, rows)).collect::<Result<Vec<_>>>()?;
        let mut pair = |mut tokens: Tokens| -> Result<Pair> {
            let reference = match &all {
                // Rows do not know of each other.
                Some(all) => all.of_rows(&(0..tokens.m as usize).map(Some).collect::<Vec<_>>()),
                None => {
                    tokens.swap(&mut operands);
                    let reference = reference::of(&operands);
                    tokens.swap(&mut operands);
                    reference?
                }
            };
            Ok(Pair { tokens: Mutex::new(tokens), reference })
        };
        let pairs = first.into_iter().map(&mut pair).collect::<Result<_>>()?;
        Ok(Self { operands: Mutex::new(operands), pairs })
    }

    /// Gives `what` the operands of a pair.
    pub fn with<R>(&self, pair: &Pair, what: impl FnOnce(&HostOperands) -> R) -> R {
        let mut operands = self.operands.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tokens = pair.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.swap(&mut operands);
        let result = what(&operands);
        tokens.swap(&mut operands);
        result
    }
}

/// The first tokens, for groups of these rows.
fn first_rows(whole: &HostOperands, rows: &[u32]) -> Result<Tokens> {
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
    Ok(Tokens { m, offsets, a })
}
