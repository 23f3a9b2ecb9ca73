//! Random operands that leave no code and no scale out.

use std::array;
use std::ops::ControlFlow;

use fastrand::Rng;
use half::{bf16, f16};

use super::cores::{cores, each_part};
use super::operands::{HostColumns, HostMatrix, HostOperands, HostRows, Shape};
use warpsmith::format::Format;
use warpsmith::internal::crew;
use warpsmith::internal::format::{e2m1, e4m3, e8m0};
use warpsmith::spec::Problem;

/// Which block scales random NVFP4 and MXFP4 operands have. Codes are uniform over all sixteen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Uniform below 1, as in the public benchmark: some are subnormal. α = 1.
    Uniform,
    /// Mostly eight octaves around 1/8, and one in 32 any code from 0 to 448; α such that results are of the order
    /// of 1 (products that are clamped, of their limit), and different for every group.
    Every,
    /// Few tokens that are not 0, and scales within three octaves: so that tensor cores lose nothing of sums of e4m3 products, and
    /// what is wrong shows. Where row and column are even all products are positive, and their sums grow. α as above.
    Exact,
    /// Nothing but subnormals, so that nothing hides what is done to them; α as above.
    Subnormal,
}

/// Below this a uniform weight scale lies, so that with α = 1 products of thousands stay within f16.
const UNIFORM_WEIGHTS: f32 = 0.125;

/// Bytes that a core draws or counts at a time; what is drawn begins with a seed of its own.
const PART: usize = 1 << 20;

impl HostOperands {
    /// Random operands for groups of `rows` rows; one number if the problem has no groups. The same seed gives the same
    /// operands.
    #[must_use]
    pub fn random(problem: &Problem, rows: &[u32], spread: Spread, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let m: u32 = rows.iter().sum();
        let (n, k) = (problem.columns(), problem.depth() as usize);
        let groups = problem.groups().unwrap_or(1) as usize;
        let (a, from) = a_of(&mut rng, problem, m, spread, seed);
        let products = problem.operation().products();
        let mut b: Vec<_> = (0..products)
            .map(|_| matrix(&mut rng, problem.b_format(), groups, Shape::of(problem, n), spread, UNIFORM_WEIGHTS))
            .collect();
        if spread == Spread::Exact {
            b.iter_mut().for_each(|b| positive_in_even_rows(b, k));
        }
        let alpha = alpha(&mut rng, problem, &a, &b, spread);
        let columns = columns(&mut rng, problem);
        let offsets = offsets(problem, rows);
        let c_factor = c_factor(&mut Rng::with_seed(!seed), problem, spread);
        Self { problem: *problem, m, offsets, a, b, alpha, c_factor, columns, rows: from }
    }

    /// The same weights, and what columns have of their own, with other rows. Whatever rows there were before, the same seed
    /// gives the same ones.
    #[must_use]
    pub fn with_rows(self, rows: &[u32], spread: Spread, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let m: u32 = rows.iter().sum();
        let (a, from) = a_of(&mut rng, &self.problem, m, spread, seed);
        let alpha = alpha(&mut rng, &self.problem, &a, &self.b, spread);
        Self { m, offsets: offsets(&self.problem, rows), a, alpha, rows: from, ..self }
    }
}

/// A for `m` rows, and where they come from and go.
fn a_of(rng: &mut Rng, problem: &Problem, m: u32, spread: Spread, seed: u64) -> (HostMatrix, HostRows) {
    let from = rows_of(&mut Rng::with_seed(seed ^ m as u64), problem, m);
    let a_rows = from.gathered.as_ref().map_or(m, |(rows, _)| *rows);
    (tokens(rng, problem.a_format(), Shape::of(problem, a_rows), spread), from)
}

/// For each product one number a group.
fn alpha(rng: &mut Rng, problem: &Problem, a: &HostMatrix, b: &[HostMatrix], spread: Spread) -> Vec<Vec<f32>> {
    let groups = problem.groups().unwrap_or(1);
    let of = |b| match spread {
        Spread::Uniform => vec![1.0],
        // Products of independent elements: the sum over K grows with its square root.
        Spread::Every | Spread::Exact | Spread::Subnormal => {
            let size = size(problem) / (f64::from(problem.depth()).sqrt() * magnitude(a) * magnitude(b));
            (0..groups).map(|_| (size * (0.5 + rng.f64())) as f32).collect()
        }
    };
    b.iter().map(of).collect()
}

/// The size of most products: of the order of 1; where they are clamped, such that they lie on both sides of the limit.
fn size(problem: &Problem) -> f64 {
    problem.operation().activation().limit().map_or(2.0, |limit| 0.7 * f64::from(limit))
}

/// One for all groups, or one for each, if C is in NVFP4: such that scales of blocks with one group's are small, another's are
/// larger than there are.
fn c_factor(rng: &mut Rng, problem: &Problem, spread: Spread) -> Vec<f32> {
    if problem.c_format() != Format::Nvfp4 {
        return Vec::new();
    }
    let size = if spread == Spread::Uniform { 64.0 } else { size(problem) };
    let groups = problem.groups().filter(|_| spread == Spread::Every).unwrap_or(1);
    let first = if groups == 1 { rng.u32(..3) } else { 0 };
    let exponent = |rng: &mut Rng, group: u32| match (first + group) % 3 {
        0 => rng.i32(-3..=3),
        1 => rng.i32(7..=10),
        _ => rng.i32(-10..=-8),
    };
    let factor = |group| (size / 6.0 * (0.5 + rng.f64()) * 2f64.powi(exponent(rng, group))) as f32;
    (0..groups).map(factor).collect()
}

/// One for each column of each group for the first product, for all groups alike for the second: of both signs, some 0.
fn columns(rng: &mut Rng, problem: &Problem) -> HostColumns {
    let (n, groups) = (problem.columns() as usize, problem.groups().unwrap_or(1) as usize);
    let mut values = |mut value: Box<dyn FnMut(&mut Rng) -> f32>| -> Vec<Vec<f32>> {
        let lengths = [groups * n, n].into_iter().take(problem.operation().products() as usize);
        lengths.map(|length| (0..length).map(|_| if rng.u32(..64) == 0 { 0.0 } else { value(rng) }).collect()).collect()
    };
    let row_scale = match problem.has_row_scale() {
        true => values(Box::new(|rng| (0.5 + rng.f32()) * if rng.bool() { 1.0 } else { -1.0 })),
        false => Vec::new(),
    };
    let bias = problem.bias_format().map(|format| values(Box::new(move |rng| representable(format, value(rng)))));
    HostColumns { row_scale, bias: bias.unwrap_or_default() }
}

/// Rows of A in any order, some of them more than once; rows of C in any order, and some that nothing is put in. In each list
/// about one in 64 numbers is none.
fn rows_of(rng: &mut Rng, problem: &Problem, m: u32) -> HostRows {
    let wrong = |rng: &mut Rng, rows: u32| [-1, rows as i32, i32::MIN, i32::MAX][rng.usize(..4)];
    let tokens = (m / problem.routing().top_k.unwrap_or(1)).max(1);
    let gathered = problem.is_gathered().then(|| {
        let number = |rng: &mut Rng| match rng.u32(..64) {
            0 => wrong(rng, tokens),
            _ => rng.u32(..tokens) as i32,
        };
        (tokens, (0..m).map(|_| number(rng)).collect())
    });
    let (slots, factors) = match problem.has_slots() {
        true => {
            let rows = m + 1 + m / 16;
            let mut slots: Vec<i32> = (0..rows as i32).collect();
            rng.shuffle(&mut slots);
            slots.truncate(m as usize);
            slots.iter_mut().for_each(|slot| {
                if rng.u32(..64) == 0 {
                    *slot = wrong(rng, rows)
                }
            });
            let factors = (0..m).map(|_| (0.25 + rng.f32()) * if rng.bool() { 1.0 } else { -1.0 }).collect();
            (Some((rows, slots)), (m % 3 != 2).then_some(factors))
        }
        false => (None, None),
    };
    HostRows { gathered, slots, factors }
}

/// The value of a format that is nearest.
fn representable(format: Format, value: f32) -> f32 {
    match format {
        Format::F16 => f16::from_f32(value).to_f32(),
        Format::Bf16 => bf16::from_f32(value).to_f32(),
        _ => value,
    }
}

/// Where groups of so many rows begin, and the end of the last, if the problem has groups.
pub(super) fn offsets(problem: &Problem, rows: &[u32]) -> Option<Vec<i32>> {
    let ends = rows.iter().scan(0, |end, rows| {
        *end += *rows as i32;
        Some(*end)
    });
    problem.groups().map(|_| std::iter::once(0).chain(ends).collect())
}

/// Values of A.
fn tokens(rng: &mut Rng, format: Format, shape: Shape, spread: Spread) -> HostMatrix {
    let exact = |rng: &mut Rng, row: usize| match rng.u32(..16) {
        0 => [1.0, 2.0][rng.usize(..2)] * if row % 2 == 1 && rng.bool() { -1.0 } else { 1.0 },
        _ => 0.0,
    };
    let (rows, k) = (shape.rows, shape.k);
    match (format, spread) {
        (Format::E4m3, Spread::Exact) => {
            let mut values = vec![0; rows * k];
            for (at, value) in values.iter_mut().enumerate() {
                *value = e4m3::encode(exact(rng, at / k));
            }
            HostMatrix::E4m3 { values, factors: (0..rows * shape.factors).map(|_| factor(rng)).collect() }
        }
        (Format::E4m3, _) => {
            // A quarter of them far below the row's largest.
            let small = |rng: &mut Rng| if rng.u32(..4) == 0 { (-12.0 * rng.f32()).exp2() } else { 1.0 };
            let values = drawn_each(rng, rows * k, |rng| e4m3::encode(224.0 * value(rng) * small(rng)));
            HostMatrix::E4m3 { values, factors: (0..rows * shape.factors).map(|_| factor(rng)).collect() }
        }
        (Format::F16, Spread::Exact) => {
            HostMatrix::F16((0..rows * k).map(|at| f16::from_f32(exact(rng, at / k))).collect())
        }
        _ => matrix(rng, format, 1, shape, spread, 1.0),
    }
}

/// A factor of tokens: of three octaves.
fn factor(rng: &mut Rng) -> f32 {
    0.01 * (3.0 * rng.f32()).exp2()
}

/// No codes with a sign in even rows.
fn positive_in_even_rows(matrix: &mut HostMatrix, k: usize) {
    let HostMatrix::Nvfp4 { codes, .. } = matrix else { return };
    for row in codes.chunks_mut(k / 2).step_by(2) {
        row.iter_mut().for_each(|pair| *pair &= 0x77);
    }
}

fn matrix(rng: &mut Rng, format: Format, groups: usize, shape: Shape, spread: Spread, limit: f32) -> HostMatrix {
    let elements = groups * shape.rows * shape.k;
    match format {
        Format::Nvfp4 => {
            let codes = drawn(rng, elements / 2, Rng::fill);
            // Padding gets scales too: a kernel that reads it shows.
            let bytes = groups * shape.layout.bytes(shape.rows, shape.k);
            HostMatrix::Nvfp4 { codes, scales: drawn_each(rng, bytes, |rng| scale(rng, spread, limit)) }
        }
        Format::Mxfp4 => {
            let codes = drawn(rng, elements / 2, Rng::fill);
            let bytes = groups * format.scale_bytes(shape.layout, shape.rows, shape.k);
            HostMatrix::Mxfp4 { codes, scales: drawn_each(rng, bytes, |rng| power(rng, spread, limit)) }
        }
        Format::Bf16 => HostMatrix::Bf16((0..elements).map(|_| bf16::from_f32(value(rng))).collect()),
        _ => HostMatrix::F16((0..elements).map(|_| f16::from_f32(value(rng))).collect()),
    }
}

/// So many bytes that `fill` draws, by all cores: experts of large models have billions. They depend on the generator's state alone.
fn drawn(rng: &mut Rng, length: usize, fill: impl Fn(&mut Rng, &mut [u8]) + Sync) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let seeded = bytes.chunks_mut(PART).map(|part| (Rng::with_seed(rng.u64(..)), part));
    each_part(seeded, |(rng, bytes)| fill(rng, bytes));
    bytes
}

fn drawn_each(rng: &mut Rng, length: usize, draw: impl Fn(&mut Rng) -> u8 + Sync) -> Vec<u8> {
    drawn(rng, length, |rng, part| part.iter_mut().for_each(|byte| *byte = draw(rng)))
}

/// Mostly of the order of 1, like activations behind a norm.
fn value(rng: &mut Rng) -> f32 {
    2.0 * (rng.f32() + rng.f32() - 1.0)
}

fn scale(rng: &mut Rng, spread: Spread, limit: f32) -> u8 {
    match spread {
        Spread::Uniform => e4m3::encode(limit * rng.f32()),
        Spread::Every if rng.u32(..32) == 0 => rng.u8(..=0x7E),
        Spread::Every => e4m3::encode(0.125 * (8.0 * rng.f32() - 4.0).exp2()),
        Spread::Exact if rng.u32(..32) == 0 => 0,
        Spread::Exact => rng.u8(0x38..0x50),
        Spread::Subnormal => rng.u8(..8),
    }
}

/// Scales of MXFP4: within what f16 holds exactly, with any of those among the others where every scale is to be met; where
/// they are subnormal in NVFP4, those that are subnormal numbers of f16, most of them exact there. Kernels take longer for those of 2
/// and above, which weights do not have as a rule: they are few, as kernels are timed with every scale.
fn power(rng: &mut Rng, spread: Spread, limit: f32) -> u8 {
    let limit = limit.log2() as i32;
    e8m0::encode(match spread {
        Spread::Uniform => limit - rng.i32(1..8),
        Spread::Every => match rng.u32(..1024) {
            0 => rng.i32(1..=8),
            1..=32 => rng.i32(-24..=0),
            _ => rng.i32(-9..=-1),
        },
        Spread::Exact => rng.i32(0..3),
        Spread::Subnormal => rng.i32(-24..=-15),
    })
}

/// The root of the mean square of all elements.
fn magnitude(matrix: &HostMatrix) -> f64 {
    fn root(squares: impl ExactSizeIterator<Item = f64>) -> f64 {
        let count = squares.len().max(1) as f64;
        (squares.sum::<f64>() / count).sqrt().max(f64::MIN_POSITIVE)
    }
    let codes = || root((0..16).map(|code| f64::from(e2m1::decode(code)).powi(2)));
    match matrix {
        HostMatrix::F16(values) => root(values.iter().map(|value| value.to_f64().powi(2))),
        HostMatrix::Bf16(values) => root(values.iter().map(|value| value.to_f64().powi(2))),
        HostMatrix::E4m3 { values, factors } => {
            of_bytes(values, e4m3::decode) * root(factors.iter().map(|factor| f64::from(*factor).powi(2)))
        }
        // Codes are uniform and independent of their scales.
        HostMatrix::Nvfp4 { scales, .. } => codes() * of_bytes(scales, e4m3::decode),
        HostMatrix::Mxfp4 { scales, .. } => codes() * of_bytes(scales, e8m0::decode),
    }
}

/// The same of values that are bytes, each value once; counted by all cores, as they are drawn.
fn of_bytes(bytes: &[u8], decode: impl Fn(u8) -> f32) -> f64 {
    let parts: Vec<&[u8]> = bytes.chunks(PART).collect();
    let counted = crew::each(&parts, cores(), |part| {
        let mut counts = [0usize; 256];
        part.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
        ControlFlow::Continue(counts)
    });
    let counts: [usize; 256] = array::from_fn(|byte| counted.iter().map(|(_, counts)| counts[byte]).sum());
    let counted = (0..=u8::MAX).zip(counts).filter(|(_, count)| *count > 0);
    let squares: f64 = counted.map(|(byte, count)| count as f64 * f64::from(decode(byte)).powi(2)).sum();
    (squares / bytes.len().max(1) as f64).sqrt().max(f64::MIN_POSITIVE)
}
