//! Operands on the host: what a launch reads, and random ones that exercise every code and every scale.

use std::ops::Range;

use half::{bf16, f16};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use warpsmith::format::{Format, ScaleLayout, e2m1, e4m3};
use warpsmith::spec::Problem;

/// A matrix operand: `[rows, K]`, or `[groups, rows, K]`.
#[derive(Clone, Debug)]
pub enum HostMatrix {
    /// Codes, and block scales in the problem's layout (group after group).
    Nvfp4 { codes: Vec<u8>, scales: Vec<u8> },
    /// Values.
    F16(Vec<f16>),
    /// Values.
    Bf16(Vec<bf16>),
}

/// The operands of one launch.
#[derive(Clone, Debug)]
pub struct HostOperands {
    /// What is computed from them.
    pub problem: Problem,
    /// Rows of A, of all groups together.
    pub m: u32,
    /// Where each group begins, and the end of the last; when grouped.
    pub offsets: Option<Vec<i32>>,
    /// A `[m, K]`.
    pub a: HostMatrix,
    /// B, or B1 and B2: `[N, K]` or `[G, N, K]`.
    pub b: Vec<HostMatrix>,
    /// α of each product: one number, or one a group.
    pub alpha: Vec<Vec<f32>>,
}

impl HostOperands {
    /// The rows of every group, in order; one group if the problem has none.
    pub fn groups(&self) -> Vec<Range<usize>> {
        let whole = 0..self.m as usize;
        match &self.offsets {
            None => vec![whole],
            Some(offsets) => offsets.windows(2).map(|pair| pair[0] as usize..pair[1] as usize).collect(),
        }
    }

    /// α of a product for a group.
    pub fn alpha_of(&self, product: usize, group: usize) -> f32 {
        let alpha = &self.alpha[product];
        if alpha.len() == 1 { alpha[0] } else { alpha[group] }
    }
}

/// Where a row lies: group `group` of operands with `rows` rows of `k` elements each.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub layout: ScaleLayout,
    pub rows: usize,
    pub k: usize,
}

impl HostMatrix {
    /// The exact values of one row.
    pub fn decode_row(&self, shape: Shape, group: usize, row: usize, out: &mut [f64]) {
        let Shape { layout, rows, k } = shape;
        let first = (group * rows + row) * k;
        match self {
            HostMatrix::F16(values) => {
                out.iter_mut().zip(&values[first..first + k]).for_each(|(out, value)| *out = value.to_f64());
            }
            HostMatrix::Bf16(values) => {
                out.iter_mut().zip(&values[first..first + k]).for_each(|(out, value)| *out = value.to_f64());
            }
            HostMatrix::Nvfp4 { codes, scales } => {
                let scales = &scales[group * layout.bytes(rows, k)..];
                let codes = &codes[first / 2..(first + k) / 2];
                for (block, (out, codes)) in out.chunks_mut(16).zip(codes.chunks(8)).enumerate() {
                    let scale = f64::from(e4m3::decode(scales[layout.offset(k, row, block)]));
                    for (pair, code) in out.chunks_mut(2).zip(codes) {
                        pair[0] = scale * f64::from(e2m1::decode(code & 15));
                        pair[1] = scale * f64::from(e2m1::decode(code >> 4));
                    }
                }
            }
        }
    }
}

/// What random operands look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// α = 1; scales as the public benchmark has them (uniform below a limit, some subnormal).
    Plain,
    /// Every finite scale, and α such that results are of the order of 1.
    Every,
}

/// Random operands for `rows` (of each group, if grouped). The same seed gives the same operands.
pub fn random(problem: &Problem, rows: &[u32], spread: Spread, seed: u64) -> HostOperands {
    let mut rng = SmallRng::seed_from_u64(seed);
    let m: u32 = rows.iter().sum();
    let (n, k) = (problem.columns() as usize, problem.depth() as usize);
    let groups = problem.groups().unwrap_or(1) as usize;
    let layout = problem.scale_layout();
    let products = problem.operation().products() as usize;
    let a = matrix(&mut rng, problem.a_format(), 1, Shape { layout, rows: m as usize, k }, spread, 1.0);
    let b: Vec<_> = (0..products)
        .map(|_| matrix(&mut rng, problem.b_format(), groups, Shape { layout, rows: n, k }, spread, 0.125))
        .collect();
    let alpha = b
        .iter()
        .map(|b| match spread {
            Spread::Plain => vec![1.0],
            // Products of independent elements: the sum over K grows with its square root.
            Spread::Every => {
                let size = 2.0 / ((k as f64).sqrt() * magnitude(&a) * magnitude(b));
                (0..groups).map(|_| (size * rng.random_range(0.5..1.5)) as f32).collect()
            }
        })
        .collect();
    let offsets = problem.groups().map(|_| {
        let ends = rows.iter().scan(0, |end, rows| {
            *end += *rows as i32;
            Some(*end)
        });
        std::iter::once(0).chain(ends).collect()
    });
    HostOperands { problem: *problem, m, offsets, a, b, alpha }
}

fn matrix(rng: &mut SmallRng, format: Format, groups: usize, shape: Shape, spread: Spread, limit: f32) -> HostMatrix {
    let elements = groups * shape.rows * shape.k;
    match format {
        Format::Nvfp4 => {
            let mut codes = vec![0; elements / 2];
            rng.fill(&mut codes[..]);
            let bytes = groups * shape.layout.bytes(shape.rows, shape.k);
            HostMatrix::Nvfp4 { codes, scales: (0..bytes).map(|_| scale(rng, spread, limit)).collect() }
        }
        Format::Bf16 => HostMatrix::Bf16((0..elements).map(|_| bf16::from_f32(value(rng))).collect()),
        _ => HostMatrix::F16((0..elements).map(|_| f16::from_f32(value(rng))).collect()),
    }
}

/// Mostly of the order of 1, like activations behind a norm.
fn value(rng: &mut SmallRng) -> f32 {
    rng.random_range(-1.0..1.0f32) + rng.random_range(-1.0..1.0f32)
}

fn scale(rng: &mut SmallRng, spread: Spread, limit: f32) -> u8 {
    match spread {
        Spread::Plain => e4m3::encode(rng.random_range(0.0..limit)),
        // One in 32 is any code from 0 to 448, so that none is missing; the others spread over eight octaves.
        Spread::Every if rng.random_ratio(1, 32) => rng.random_range(0..=0x7E),
        Spread::Every => e4m3::encode(limit * rng.random_range(-6.0..2.0f32).exp2()),
    }
}

/// The root of the mean square of all elements.
fn magnitude(matrix: &HostMatrix) -> f64 {
    fn root(squares: impl ExactSizeIterator<Item = f64>) -> f64 {
        let count = squares.len().max(1) as f64;
        (squares.sum::<f64>() / count).sqrt()
    }
    match matrix {
        HostMatrix::F16(values) => root(values.iter().map(|value| value.to_f64().powi(2))),
        HostMatrix::Bf16(values) => root(values.iter().map(|value| value.to_f64().powi(2))),
        HostMatrix::Nvfp4 { scales, .. } => {
            // Codes are uniform and independent of their scales.
            let codes = root((0..16).map(|code| f64::from(e2m1::decode(code)).powi(2)));
            codes * root(scales.iter().map(|scale| f64::from(e4m3::decode(*scale)).powi(2)))
        }
    }
}
