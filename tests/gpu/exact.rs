//! Every e2m1 code with every e4m3 scale arrives in the matrix instruction as exactly what it stands for.
//!
//! One operand is NVFP4 with row r scaled by scale code r (all 256, subnormal, negative and NaN among them) and all
//! sixteen codes in each row; the other is a 64×64 unit matrix. So C holds the decoded operand itself, in f32.

use half::{bf16, f16};
use warpsmith::format::{Format, ScaleLayout, e2m1, e4m3};
use warpsmith::oracle::{Expected, Reference};
use warpsmith::spec::{Problem, Spec};
use warpsmith::tune::{HostMatrix, HostOperands, Trial};

use crate::bench::Bench;

const K: usize = 64;
const SCALES: usize = 256;

#[derive(Clone, Copy)]
pub struct Case {
    /// The format of the unit matrix, and so of the multiplication.
    compute: Format,
    /// Whether the weights are NVFP4 (or else the tokens).
    weights: bool,
    layout: ScaleLayout,
}

impl Case {
    pub fn name(&self) -> String {
        let operand = if self.weights { "weights" } else { "tokens" };
        format!("exact: every code and scale of {operand} in {} ({} scales)", self.compute, self.layout)
    }
}

pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for compute in [Format::F16, Format::Bf16] {
        for weights in [true, false] {
            for layout in [ScaleLayout::Linear, ScaleLayout::Swizzled128x4] {
                cases.push(Case { compute, weights, layout });
            }
        }
    }
    cases
}

/// Code of element (row, k): all sixteen in every row, in another order in each.
fn code(row: usize, k: usize) -> u8 {
    ((k + row) % 16) as u8
}

pub fn is_exact(bench: &Bench, case: &Case) -> Result<(), String> {
    let mut scales = vec![0x7F; case.layout.bytes(SCALES, K)];
    for row in 0..SCALES {
        for block in 0..K / 16 {
            scales[case.layout.offset(K, row, block)] = row as u8;
        }
    }
    let pairs = (0..SCALES * K / 2).map(|byte| {
        let (row, k) = (byte * 2 / K, byte * 2 % K);
        code(row, k) | code(row, k + 1) << 4
    });
    let coded = HostMatrix::Nvfp4 { codes: pairs.collect(), scales };
    let one = |index: usize| if index / K == index % K { 1.0 } else { 0.0 };
    let unit = match case.compute {
        Format::Bf16 => HostMatrix::Bf16((0..K * K).map(|index| bf16::from_f32(one(index))).collect()),
        _ => HostMatrix::F16((0..K * K).map(|index| f16::from_f32(one(index))).collect()),
    };
    let problem = Problem::gemm().k(K as u32).c(Format::F32).scales(case.layout);
    let (problem, m, a, b) = if case.weights {
        (problem.n(SCALES as u32).a(case.compute).b(Format::Nvfp4), K, unit, coded)
    } else {
        (problem.n(K as u32).a(Format::Nvfp4).b(case.compute), SCALES, coded, unit)
    };
    let host = HostOperands { problem, m: m as u32, offsets: None, a, b: vec![b], alpha: vec![vec![1.0]] };

    let columns = problem.columns() as usize;
    let element = |index: usize| {
        let (row, k) =
            if case.weights { (index % columns, index / columns) } else { (index / columns, index % columns) };
        // A NaN scale is a NaN wherever its row goes: 0 · NaN is NaN.
        let value = f64::from(e2m1::decode(code(row, k))) * f64::from(e4m3::decode(row as u8));
        Expected { value, bound: 0.0 }
    };
    let elements = (0..m * columns).map(element).collect();
    let reference = Reference::new(m, columns, Format::F32, elements).map_err(|error| error.to_string())?;
    for variant in ["mma.t64x64x64.s1.single.uniform.direct", "mma.t8x32x64.s2.single.uniform.direct"] {
        let spec = Spec::new(&problem, &variant.parse().unwrap(), bench.arch()).map_err(|error| error.to_string())?;
        let kernel = bench.kernel(&spec)?;
        let _turn = bench.turn.lock().unwrap();
        let trial = Trial::new(&bench.stream, &host, &reference).map_err(|error| error.to_string())?;
        let checked = trial.check(&kernel).map_err(|error| error.to_string())?;
        if !checked.passed() {
            return Err(format!("{spec}: {checked}"));
        }
    }
    Ok(())
}
