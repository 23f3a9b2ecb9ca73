//! The host's part of a problem: weights once, tokens and results for every M.

use std::mem;
use std::sync::{Mutex, PoisonError};

use warpsmith::spec::Problem;
use warpsmith_tune::oracle::Reference;
use warpsmith_tune::{HostMatrix, HostOperands, HostRows, Spread, reference};

use crate::shared::Result;

const SEED: u64 = 0x5EED;

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
    rows: HostRows,
}

impl Tokens {
    /// Those of the operands, which have none then.
    fn taken(operands: &mut HostOperands) -> Self {
        let mut tokens = Self { m: 0, offsets: None, a: HostMatrix::F16(Vec::new()), rows: HostRows::default() };
        tokens.swap(operands);
        tokens
    }

    /// Those of the operands, and these in their place.
    fn swap(&mut self, operands: &mut HostOperands) {
        mem::swap(&mut self.m, &mut operands.m);
        mem::swap(&mut self.offsets, &mut operands.offsets);
        mem::swap(&mut self.a, &mut operands.a);
        mem::swap(&mut self.rows, &mut operands.rows);
    }
}

impl Host {
    /// Random operands as in the public benchmark; every M has the same weights.
    pub fn new(problem: &Problem, rows: &[Vec<u32>]) -> Result<Self> {
        let first = rows.first().ok_or("a problem without M")?;
        let mut operands = HostOperands::random(problem, first, Spread::Uniform, SEED);
        let mut pairs = Vec::with_capacity(rows.len());
        for rows in rows {
            operands = operands.with_rows(rows, Spread::Uniform, SEED);
            let reference = reference::of(&operands)?;
            pairs.push(Pair { tokens: Mutex::new(Tokens::taken(&mut operands)), reference });
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_m_has_its_tokens_and_the_same_weights() {
        let experts = "grouped8.dual_gemm.silu:bf16*nvfp4>bf16:n64:k64:gathered:prepared:top2";
        let slots = "grouped4.gemm:e4m3*nvfp4>bf16:n64:k128:slots:prepared";
        for problem in ["gemm:nvfp4*nvfp4>f16:n64:k64", experts, slots] {
            let problem: Problem = problem.parse().unwrap();
            let groups = problem.groups().unwrap_or(1) as usize;
            let rows = [vec![2; groups], vec![7; groups], vec![0; groups]];
            let host = Host::new(&problem, &rows).unwrap();
            let weights = |pair: &Pair| host.with(pair, |operands| operands.b.clone());
            assert!(host.pairs.iter().all(|pair| weights(pair) == weights(&host.pairs[0])), "{problem}");
            for (pair, rows) in host.pairs.iter().zip(rows) {
                host.with(pair, |operands| {
                    operands.check().unwrap();
                    assert_eq!(operands.m, rows.iter().sum::<u32>());
                    assert_eq!(pair.reference.m(), operands.c_rows() as usize, "{problem}");
                });
            }
        }
    }
}
