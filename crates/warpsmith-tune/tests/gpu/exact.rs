//! Every e2m1 code with every e4m3 or e8m0 scale arrives in the matrix instruction as exactly what it stands for.
//!
//! One operand is NVFP4 with row r scaled by scale code r (all 256, subnormal, negative and NaN among them) and all
//! sixteen codes in each row; the other is a 64×64 unit matrix. So C holds the decoded operand itself, in f32. (Prepared
//! weights lose the sign of a zero, which is no difference to the gate.)

use half::{bf16, f16};
use warpsmith::format::{E4m3Tensor, Format, ScaleLayout};
use warpsmith::internal::format::{e2m1, e4m3, e4m3_value, mxfp4_value, row_exponent};
use warpsmith::spec::{Arch, MatrixPath, Problem};
use warpsmith_tune::oracle::{Expected, Reference};
use warpsmith_tune::{HostColumns, HostMatrix, HostOperands, HostRows};

use crate::bench::Bench;
use crate::families::block_scaled;

const K: usize = 64;
const SCALES: usize = 256;

#[derive(Clone, Copy)]
pub struct Case {
    /// The format of the unit matrix, and so of the multiplication.
    compute: Format,
    /// Whether the weights are NVFP4 (or else the tokens).
    weights: bool,
    /// `wgmma`: the weights are prepared, and so NVFP4 whatever the tokens are. `mxf4` and `tcgen05`: both operands are NVFP4.
    path: MatrixPath,
    layout: ScaleLayout,
    /// The format of the operand that is not the unit matrix.
    coded: Format,
}

impl Case {
    pub fn name(&self) -> String {
        let operand = match (self.weights, self.path) {
            (_, MatrixPath::Wgmma) if self.coded == Format::Mxfp4 => "prepared mxfp4 weights",
            _ if self.coded == Format::Mxfp4 => "mxfp4 weights",
            (true, MatrixPath::Wgmma) => "prepared weights",
            (false, MatrixPath::Wgmma) => "tokens with prepared weights",
            (true, MatrixPath::Mxf4 | MatrixPath::Tcgen05) => "weights with coded tokens",
            (false, MatrixPath::Mxf4 | MatrixPath::Tcgen05) => "tokens with coded weights",
            (true, _) => "weights",
            (false, _) => "tokens",
        };
        format!("exact: every code and scale of {operand} in {} ({} scales)", self.compute, self.layout)
    }

    fn variants(&self) -> &'static [&'static str] {
        match (self.weights, self.path) {
            (_, MatrixPath::Mxf4) => &[
                "mxf4.t64x64x64.s1.single.uniform.direct",
                "mxf4.t8x32x64.s2.single.uniform.direct",
                "mxf4.t40x256x128.s1.single.uniform.direct",
                "mxf4.t128x32x256.s1.single.uniform.direct",
            ],
            (_, MatrixPath::Tcgen05) => &[
                "tcgen05.t64x128x256.s1.single.ws1.direct",
                "tcgen05.t128x64x256.s1.single.ws1.direct.token_rows",
                "tcgen05.t96x256x256.s2.single.ws1.direct.pair",
                "tcgen05.t256x192x256.s1.single.ws1.direct.pair.token_rows",
            ],
            (true, MatrixPath::Wgmma) if self.compute == Format::E4m3 => {
                &["wgmma.t64x64x128.s1.single.uniform.direct", "wgmma.t64x128x256.s2.single.ws2.shared"]
            }
            (true, MatrixPath::Wgmma) => {
                &["wgmma.t64x64x64.s1.single.uniform.direct", "wgmma.t64x128x128.s2.single.ws2.shared"]
            }
            (false, MatrixPath::Wgmma) => &[
                "wgmma.t64x64x64.s1.single.uniform.direct.prepass",
                "wgmma.t64x64x128.s2.single.ws1.shared.prepass",
                "wgmma.t64x64x64.s1.single.ws1.direct",
                "wgmma.t8x64x128.s2.single.ws2.direct",
            ],
            // Tiles of one K block, and of two that warps share.
            _ if self.coded == Format::Mxfp4 => &[
                "mma.t64x64x64.s1.single.uniform.direct",
                "mma.t8x32x64.s2.single.uniform.direct",
                "mma.t8x32x128.s2.single.uniform.direct",
            ],
            _ => &["mma.t64x64x64.s1.single.uniform.direct", "mma.t8x32x64.s2.single.uniform.direct"],
        }
    }

    /// The 64×64 unit matrix.
    fn unit(&self) -> HostMatrix {
        const ONE: u8 = 2;
        const SCALE_ONE: u8 = 0x38;
        let one = |index: usize| if index / K == index % K { 1.0 } else { 0.0 };
        if matches!(self.path, MatrixPath::Mxf4 | MatrixPath::Tcgen05)
            || (self.path == MatrixPath::Wgmma && !self.weights)
        {
            let code = |index: usize| if one(index) == 1.0 { ONE } else { 0 };
            let codes = (0..K * K / 2).map(|byte| code(2 * byte) | code(2 * byte + 1) << 4);
            return HostMatrix::Nvfp4 { codes: codes.collect(), scales: vec![SCALE_ONE; self.layout.bytes(K, K)] };
        }
        match self.compute {
            Format::E4m3 => HostMatrix::E4m3 {
                values: (0..K * K).map(|at| if is_unit(at) { e4m3::encode(1.0) } else { 0 }).collect(),
                factors: (0..K).map(row_factor).collect(),
            },
            Format::Bf16 => HostMatrix::Bf16((0..K * K).map(|index| bf16::from_f32(one(index))).collect()),
            _ => HostMatrix::F16((0..K * K).map(|index| f16::from_f32(one(index))).collect()),
        }
    }
}

/// Cases for an architecture: prepared weights on Hopper only, two coded operands on the path that takes both as they are.
pub fn all(arch: &Arch) -> Vec<Case> {
    let mut cases = Vec::new();
    if arch.capability() == Arch::H200.capability() {
        for layout in [ScaleLayout::Linear, ScaleLayout::Swizzled128x4] {
            let (compute, path, coded) = (Format::E4m3, MatrixPath::Wgmma, Format::Nvfp4);
            cases.push(Case { compute, weights: true, path, layout, coded });
        }
    }
    for compute in [Format::F16, Format::Bf16] {
        for weights in [true, false] {
            for layout in [ScaleLayout::Linear, ScaleLayout::Swizzled128x4] {
                let case = Case { compute, weights, path: MatrixPath::Mma, layout, coded: Format::Nvfp4 };
                cases.push(case);
                if weights && layout == ScaleLayout::Linear {
                    cases.push(Case { coded: Format::Mxfp4, ..case });
                    if arch.capability() == Arch::H200.capability() {
                        cases.push(Case { coded: Format::Mxfp4, path: MatrixPath::Wgmma, ..case });
                    }
                }
                // NVFP4 tokens and weights are multiplied in f16.
                if arch.capability() == Arch::H200.capability() && (weights || compute == Format::F16) {
                    cases.push(Case { path: MatrixPath::Wgmma, ..case });
                }
                if let Some(path) = block_scaled(arch).filter(|_| compute == Format::F16) {
                    cases.push(Case { path, ..case });
                }
            }
        }
    }
    cases
}

/// Powers of two that take the largest codes beyond f16 or bf16, and the others not.
const HIGH: [u8; 4] = [141, 142, 253, 254];
/// MXFP4 has rows of these besides, where one code is a large one, alone infinite, and all others are small.
const MX_SCALES: usize = SCALES + 4 * HIGH.len();

/// Code and scale of an element of MXFP4.
fn mx(row: usize, k: usize) -> (u8, u8) {
    match row.checked_sub(SCALES) {
        None => (code(row, k), row as u8),
        Some(high) => (if k == 3 * high { 4 + high as u8 % 4 } else { 1 + k as u8 % 2 * 8 }, HIGH[high / 4]),
    }
}

/// Weights, and what each of their values is.
fn mx_weights(compute: Format) -> (HostMatrix, Vec<f64>) {
    let pair = |byte: usize| {
        let (row, k) = (byte * 2 / K, byte * 2 % K);
        mx(row, k).0 | mx(row, k + 1).0 << 4
    };
    let scales = (0..MX_SCALES * K / 32).map(|block| mx(block * 32 / K, 0).1).collect();
    let value = |index: usize| {
        let (code, scale) = mx(index / K, index % K);
        f64::from(mxfp4_value(compute, code, scale))
    };
    let matrix = HostMatrix::Mxfp4 { codes: (0..MX_SCALES * K / 2).map(pair).collect(), scales };
    (matrix, (0..MX_SCALES * K).map(value).collect())
}

/// Code of element (row, k): all sixteen in every row, in another order in each.
fn code(row: usize, k: usize) -> u8 {
    ((k + row) % 16) as u8
}

/// Whether a byte of e4m3 tokens is the unit matrix's 1 of its row.
fn is_unit(at: usize) -> bool {
    E4m3Tensor::position(at / K) == at % K
}

/// A power of two, so that nothing is rounded, and another than the neighbours'.
fn row_factor(row: usize) -> f32 {
    2f32.powi(row as i32 % 5 - 2)
}

/// Rows of weights that become e4m3: every scale as the only one of its row, and beside others that make it small in its row.
const E4M3_ROWS: usize = 4 * SCALES;

fn e4m3_scale(row: usize, block: usize) -> u8 {
    let scale = row as u8;
    match (row / SCALES, block) {
        (0, _) | (_, 2) => scale,
        (1, 0) => 0x7E,
        (2, 1) => 0x38,
        (3, 3) => 0x10,
        _ => scale.wrapping_mul(37) & 0x0F,
    }
}

/// What weights become that are rounded once more: all are met, as each row is multiplied with a unit matrix.
fn is_rounded_once(bench: &Bench, case: &Case) -> Result<(), String> {
    let mut scales = vec![0x7F; case.layout.bytes(E4M3_ROWS, K)];
    for (row, block) in (0..E4M3_ROWS * K / 16).map(|at| (at * 16 / K, at % (K / 16))) {
        scales[case.layout.offset(K, row, block)] = e4m3_scale(row, block);
    }
    let codes = (0..E4M3_ROWS * K / 2).map(|byte| {
        let (row, k) = (byte * 2 / K, byte * 2 % K);
        code(row, k) | code(row, k + 1) << 4
    });
    let coded = HostMatrix::Nvfp4 { codes: codes.collect(), scales };
    let problem = Problem::gemm().n(E4M3_ROWS as u32).k(K as u32).c(Format::F32).scales(case.layout);
    let problem = problem.a(Format::E4m3).prepared();
    let element = |at: usize| {
        let (m, row) = (at / E4M3_ROWS, at % E4M3_ROWS);
        let of_row = || (0..K / 16).map(|block| e4m3_scale(row, block));
        let weight = e4m3_value(code(row, m), e4m3_scale(row, m / 16), row_exponent(of_row()));
        // A NaN scale is a NaN in all of its row of weights: 0 · NaN is NaN.
        let is_nan = of_row().any(e4m3::is_nan);
        let value = if is_nan { f64::NAN } else { f64::from(weight) * f64::from(row_factor(m)) };
        Expected { value, bound: 0.0 }
    };
    let elements = (0..K * E4M3_ROWS).map(element).collect();
    let reference = Reference::new(K, E4M3_ROWS, Format::F32, elements).map_err(|error| error.to_string())?;
    passes(bench, case, problem, K, (case.unit(), coded), &reference)
}

pub fn is_exact(bench: &Bench, case: &Case) -> Result<(), String> {
    if case.compute == Format::E4m3 {
        return is_rounded_once(bench, case);
    }
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
    let problem = Problem::gemm().k(K as u32).c(Format::F32).scales(case.layout);
    let (mx_weights, mx_values) = mx_weights(case.compute);
    let (problem, m, a, b) = if case.coded == Format::Mxfp4 {
        let unit = case.unit();
        (problem.n(MX_SCALES as u32).a(unit.format()).b(Format::Mxfp4), K, unit, mx_weights)
    } else if case.weights {
        let unit = case.unit();
        (problem.n(SCALES as u32).a(unit.format()).b(Format::Nvfp4), K, unit, coded)
    } else {
        let unit = case.unit();
        (problem.n(K as u32).a(Format::Nvfp4).b(unit.format()), SCALES, coded, unit)
    };
    let problem = if case.path == MatrixPath::Wgmma { problem.prepared() } else { problem };

    let columns = problem.columns() as usize;
    let element = |index: usize| {
        let (row, k) =
            if case.weights { (index % columns, index / columns) } else { (index / columns, index % columns) };
        // A NaN scale is a NaN wherever its row goes: 0 · NaN is NaN. So is an infinity, but for where it is not taken 0 times.
        if case.coded == Format::Mxfp4 {
            let values = mx_values[row * K..][..K].iter().enumerate();
            let value = values.map(|(at, value)| if at == k { *value } else { 0.0 * value }).sum();
            return Expected { value, bound: 0.0 };
        }
        let scale = f64::from(e4m3::decode(row as u8));
        // The tensor cores of that path do not look at the sign of a scale.
        let scale = if case.path == MatrixPath::Tcgen05 { scale.abs() } else { scale };
        let value = f64::from(e2m1::decode(code(row, k))) * scale;
        Expected { value, bound: 0.0 }
    };
    let elements = (0..m * columns).map(element).collect();
    let reference = Reference::new(m, columns, Format::F32, elements).map_err(|error| error.to_string())?;
    passes(bench, case, problem, m, (a, b), &reference)
}

/// Whether every variant's result of `m` rows is the reference.
fn passes(
    bench: &Bench,
    case: &Case,
    problem: Problem,
    m: usize,
    (a, b): (HostMatrix, HostMatrix),
    reference: &Reference,
) -> Result<(), String> {
    let (columns, rows) = (HostColumns::default(), HostRows::default());
    let alpha = vec![vec![1.0]];
    let host =
        HostOperands { problem, m: m as u32, offsets: None, a, b: vec![b], alpha, c_factor: Vec::new(), columns, rows };
    case.variants().iter().try_for_each(|variant| bench.is_right(variant, &host, reference))
}
