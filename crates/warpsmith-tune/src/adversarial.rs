//! Operands made to find what is wrong with a kernel, and what must come out of them.
//!
//! Every code, and every block scale where there is room for all of them; values at the edges of the 16-bit formats; α of
//! its own for each product and group. All elements of the result are known, whatever M is: rows of a group repeat after
//! [`PERIOD`], so that a reference of that many rows is one of all. A prime is no multiple of any tile or step a kernel
//! has, so that a row taken for another still shows.

use std::ops::Range;

use half::{bf16, f16};

use super::operands::{HostMatrix, HostOperands, Shape};
use super::random::{Spread, offsets};
use super::reference;
use crate::oracle::Reference;
use warpsmith::Result;
use warpsmith::internal::format::{BLOCK, MX_BLOCK, e8m0};
use warpsmith::spec::Problem;

/// Rows of a group that are not like one before.
pub(super) const PERIOD: u32 = 251;
/// Codes of non-negative finite scales.
const SCALES: usize = 0x7F;
/// Powers of two that are scales of MXFP4.
const MX_POWERS: Range<i32> = -25..14;
/// Every so manieth value is one at an edge of its format; prime to every power of two.
const EDGE_STEP: usize = 61;

/// Operands for groups of `rows` rows (one number if the problem has no groups), and the whole result.
///
/// # Errors
/// Data, if they do not fit the problem.
pub(super) fn operands(
    problem: &Problem,
    rows: &[u32],
    spread: Spread,
    seed: u64,
) -> Result<(HostOperands, Reference)> {
    let mut host = HostOperands::random(problem, &vec![1; rows.len()], spread, seed);
    let shape = host.b_shape();
    host.b.iter_mut().for_each(|matrix| plant_in(matrix, shape, spread));
    with_rows(host, rows, spread, seed)
}

/// The same weights with other rows: what [`operands`] gives for these.
///
/// # Errors
/// As [`operands`].
pub(super) fn with_rows(
    host: HostOperands,
    rows: &[u32],
    spread: Spread,
    seed: u64,
) -> Result<(HostOperands, Reference)> {
    let distinct: Vec<u32> = rows.iter().map(|rows| (*rows).min(PERIOD)).collect();
    let mut host = host.with_rows(&distinct, spread, seed);
    let shape = host.a_shape();
    plant_in(&mut host.a, shape, spread);
    let slots = host.rows.slots.take();
    let reference = reference::of_products(&host)?;
    let source = sources(rows);
    let reference = reference.of_rows(&source.iter().copied().map(Some).collect::<Vec<_>>());
    repeat(&mut host, rows, &source);
    host.rows.slots = slots.map(|_| rows_in_turn(host.m));
    let reference = host.placed(reference)?;
    Ok((host, reference))
}

/// For every row, which of the rows that differ it is.
fn sources(rows: &[u32]) -> Vec<usize> {
    let mut first = 0;
    let mut source = Vec::new();
    for &rows in rows {
        source.extend((0..rows).map(|row| (first + row % PERIOD) as usize));
        first += rows.min(PERIOD);
    }
    source
}

/// Rows of C that are far from each other where rows of the product are neighbours, and some that nothing is put in.
fn rows_in_turn(m: u32) -> (u32, Vec<i32>) {
    // The step is prime to the rows: every one is met once.
    let rows = (m + 2).next_power_of_two();
    let step = 2 * (rows / 5) + 1;
    (rows, (0..m).map(|row| (u64::from(row) * u64::from(step) % u64::from(rows)) as i32).collect())
}

fn repeat(host: &mut HostOperands, rows: &[u32], source: &[usize]) {
    let distinct = host.a_shape();
    let k = distinct.k;
    host.m = rows.iter().sum();
    host.offsets = offsets(&host.problem, rows);
    if let Some(factors) = &mut host.rows.factors {
        *factors = pick_rows(factors, 1, source);
    }
    // Rows that are gathered may be the same ones again.
    if let Some((_, numbers)) = &mut host.rows.gathered {
        *numbers = pick_rows(numbers, 1, source);
        return;
    }
    let whole = host.a_shape();
    match &mut host.a {
        HostMatrix::E4m3 { values, factors } => {
            *values = pick_rows(values, k, source);
            *factors = pick_rows(factors, distinct.factors, source);
        }
        HostMatrix::F16(values) => *values = pick_rows(values, k, source),
        HostMatrix::Bf16(values) => *values = pick_rows(values, k, source),
        HostMatrix::Nvfp4 { codes, scales } => {
            *codes = pick_rows(codes, k / 2, source);
            *scales = pick_scales(scales, distinct, whole, source);
        }
        HostMatrix::Mxfp4 { codes, scales } => {
            *codes = pick_rows(codes, k / 2, source);
            *scales = pick_rows(scales, k / MX_BLOCK, source);
        }
    }
}

fn pick_rows<T: Copy>(values: &[T], length: usize, source: &[usize]) -> Vec<T> {
    source.iter().flat_map(|&row| &values[row * length..(row + 1) * length]).copied().collect()
}

fn pick_scales(scales: &[u8], distinct: Shape, whole: Shape, source: &[usize]) -> Vec<u8> {
    // Padding gets scales too: a kernel that reads it shows.
    let mut picked: Vec<u8> = scales.iter().copied().cycle().take(whole.layout.bytes(whole.rows, whole.k)).collect();
    for (row, &from) in source.iter().enumerate() {
        for block in 0..whole.k / BLOCK {
            picked[whole.layout.offset(whole.k, row, block)] = scales[distinct.layout.offset(distinct.k, from, block)];
        }
    }
    picked
}

/// Puts what chance may have left out into an operand.
fn plant_in(matrix: &mut HostMatrix, shape: Shape, spread: Spread) {
    match matrix {
        // Zeros of both signs, the smallest subnormal and normal numbers, the largest.
        HostMatrix::E4m3 { values, .. } if spread != Spread::Exact => {
            plant_edges(values, &[0, 0x80, 1, 0x87, 0x08, 0x39, 0xFE]);
        }
        HostMatrix::F16(values) => {
            let edges = [0, 0x8000, 1, 0x83FF, 0x0400, 0x3C01, 0xD400].map(f16::from_bits);
            plant_edges(values, &edges);
        }
        HostMatrix::Bf16(values) => {
            let edges = [0, 0x8000, 1, 0x807F, 0x0080, 0x3F81, 0xC280].map(bf16::from_bits);
            plant_edges(values, &edges);
        }
        // The other spreads have a reason to leave scales out.
        HostMatrix::Nvfp4 { scales, .. } if spread == Spread::Every => {
            let blocks = shape.k / BLOCK;
            let step = shape.rows * blocks / SCALES;
            for code in (0..SCALES).filter(|_| step > 0) {
                let at = code * step;
                scales[shape.layout.offset(shape.k, at / blocks, at % blocks)] = code as u8;
            }
        }
        // Every one that leaves something of a code in f16, and nothing infinite.
        HostMatrix::Mxfp4 { scales, .. } if spread == Spread::Every => {
            let step = scales.len() / MX_POWERS.len();
            for (at, power) in MX_POWERS.enumerate().filter(|_| step > 0) {
                scales[at * step] = e8m0::encode(power);
            }
        }
        HostMatrix::Nvfp4 { .. } | HostMatrix::Mxfp4 { .. } | HostMatrix::E4m3 { .. } => {}
    }
}

/// Zeros of both signs, subnormal numbers, the smallest normal one, 1 and a bit, and −64.
fn plant_edges<T: Copy>(values: &mut [T], edges: &[T]) {
    values.iter_mut().step_by(EDGE_STEP).zip(edges.iter().cycle()).for_each(|(value, edge)| *value = *edge);
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpsmith::format::{Format, ScaleLayout};
    use warpsmith::spec::Activation;

    #[test]
    fn the_reference_of_repeated_rows_is_that_of_all_rows() {
        let dual = Problem::dual_gemm(Activation::Silu).n(16).k(128);
        let problems = [
            (dual, &[600][..]),
            (dual.a(Format::Nvfp4).grouped(3).scales(ScaleLayout::Swizzled128x4), &[300, 0, 260]),
            (dual.a(Format::Bf16).grouped(2), &[7, 505]),
        ];
        for (problem, rows) in problems {
            let (host, reference) = operands(&problem, rows, Spread::Every, 5).unwrap();
            host.check().unwrap();
            assert_eq!(host.m, rows.iter().sum::<u32>());
            let obvious = reference::of(&host).unwrap();
            assert_eq!((reference.m(), reference.n()), (obvious.m(), obvious.n()));
            for (found, obvious) in reference.elements().iter().zip(obvious.elements()) {
                assert!((found.value - obvious.value).abs() <= 1e-9 * obvious.value.abs().max(1e-3));
            }
        }
    }

    #[test]
    fn other_rows_are_those_that_they_would_have_been_at_once() {
        let dual = Problem::dual_gemm(Activation::Silu).n(16).k(128).prepared();
        for problem in [dual, dual.a(Format::Nvfp4), dual.grouped(3).gathered(), dual.grouped(3).slots()] {
            let rows = |all: [u32; 3]| if problem.groups().is_some() { all.to_vec() } else { all[..1].to_vec() };
            for spread in [Spread::Every, Spread::Subnormal] {
                let at_once = operands(&problem, &rows([5, 0, 300]), spread, 7).unwrap();
                let (before, _) = operands(&problem, &rows([1, 260, 3]), spread, 7).unwrap();
                assert_eq!(with_rows(before, &rows([5, 0, 300]), spread, 7).unwrap().0, at_once.0, "{problem}");
                assert_ne!(operands(&problem, &rows([5, 0, 300]), spread, 8).unwrap().0.b, at_once.0.b, "{problem}");
            }
        }
    }

    #[test]
    fn every_code_and_every_scale_is_there() {
        for layout in [ScaleLayout::Linear, ScaleLayout::Swizzled128x4] {
            let problem = Problem::gemm().n(32).k(128).a(Format::Nvfp4).scales(layout);
            let (host, _) = operands(&problem, &[20], Spread::Every, 1).unwrap();
            for (matrix, shape) in [(&host.a, host.a_shape()), (&host.b[0], host.b_shape())] {
                let HostMatrix::Nvfp4 { codes, scales } = matrix else { panic!("{problem}") };
                let used: Vec<u8> = (0..shape.rows * 8).map(|at| scales[layout.offset(128, at / 8, at % 8)]).collect();
                assert!((0..0x7F).all(|scale| used.contains(&scale)), "{layout:?}");
                assert!((0..16).all(|code| codes.iter().any(|pair| pair & 15 == code || pair >> 4 == code)));
            }
        }
    }

    #[test]
    fn nothing_but_subnormal_scales_where_that_is_the_point() {
        let problem = Problem::gemm().n(32).k(128);
        let (host, _) = operands(&problem, &[20], Spread::Subnormal, 1).unwrap();
        let HostMatrix::Nvfp4 { scales, .. } = &host.b[0] else { panic!("{problem}") };
        assert!(scales.iter().all(|scale| *scale < 8));
        let HostMatrix::F16(values) = &host.a else { panic!("{problem}") };
        assert!(values.iter().any(|value| value.to_bits() == 1) && values.iter().any(|value| value.to_f32() == -64.0));
    }
}
