//! The host reference of large problems: exact operands, products in f64 by a matrix library, then the oracle.
//!
//! [`HostOperands::reference`] is the obvious one, for small problems; the two agree to the last bits of an f64.

use std::ops::{ControlFlow, Range};

use super::cores::cores;
use super::operands::{HostMatrix, HostOperands, Shape};
use crate::oracle::{CHUNK, Products, Reference, grain};
use warpsmith::internal::{Raise, crew};
use warpsmith::{Error, Result};

/// Columns that one step multiplies: their exact values take some megabytes.
const STEP: usize = 64;

/// What the result should be: `[m, N]`, value and bound of every element. All cores work at it.
///
/// # Errors
/// Those of [`HostOperands::check`].
pub fn of(operands: &HostOperands) -> Result<Reference> {
    let columns: Vec<usize> = (0..operands.problem.columns() as usize).collect();
    in_columns(operands, &columns)
}

/// The same of the rows as they are multiplied, wherever they are put.
pub(super) fn of_products(operands: &HostOperands) -> Result<Reference> {
    let columns: Vec<usize> = (0..operands.problem.columns() as usize).collect();
    products_in_columns(operands, &columns)
}

/// What the result should be in the given columns: `[m, columns]`, value and bound of every element.
///
/// # Errors
/// Those of [`HostOperands::check`]; data, if there is no such column.
pub fn in_columns(operands: &HostOperands, columns: &[usize]) -> Result<Reference> {
    operands.check()?;
    operands.placed(products_in_columns(operands, columns)?)
}

fn products_in_columns(operands: &HostOperands, columns: &[usize]) -> Result<Reference> {
    let n = operands.problem.columns() as usize;
    if let Some(column) = columns.iter().find(|column| **column >= n) {
        return Err(Error::data(format!("column {column} of a result with {n}")));
    }
    if operands.problem.depth() == 0 {
        return Err(Error::data(format!("{}: k = 0", operands.problem)));
    }
    // Groups are multiplied at a time.
    let groups = operands.groups().iter().filter(|rows| !rows.is_empty()).count();
    let threads = cores().div_ceil(groups.clamp(1, cores()));
    operands.reference_from(columns, |group, rows| {
        let a = exact_rows(operands, rows);
        operands.b.iter().map(|b| multiply(operands, &a, b, group, columns, threads)).collect()
    })
}

/// Every column, or as many, evenly spread, as take at most `flop` floating-point operations to check; of NVFP4, whole blocks.
#[must_use]
pub fn columns_within(operands: &HostOperands, flop: f64) -> Vec<usize> {
    // Values and magnitudes.
    let work = 2.0 * operands.problem.flop(operands.m.into());
    let step = (work / flop).ceil().max(1.0) as usize;
    let block = operands.problem.c_format().scale_block().unwrap_or(1);
    (0..operands.problem.columns() as usize).step_by(step * block).flat_map(|first| first..first + block).collect()
}

/// Values and magnitudes of some rows of A, `[rows, K]`.
struct Exact {
    rows: usize,
    values: Vec<f64>,
    magnitudes: Vec<f64>,
    /// The same with the factors along K, if there are such.
    scaled: Option<[Vec<f64>; 2]>,
}

impl Exact {
    /// What is multiplied and added up.
    fn multiplied(&self) -> [&[f64]; 2] {
        match &self.scaled {
            Some([values, magnitudes]) => [values, magnitudes],
            None => [&self.values, &self.magnitudes],
        }
    }
}

fn exact_rows(operands: &HostOperands, rows: Range<usize>) -> Exact {
    let (count, k) = (rows.len(), operands.problem.depth() as usize);
    let mut values = vec![0.0; count * k];
    decode(&operands.a, operands.a_shape(), 0, operands.rows_of_a(rows.clone()), &mut values);
    let magnitudes: Vec<f64> = values.iter().map(|value| value.abs()).collect();
    let scaled = operands.factors_along_k(rows).map(|factors| {
        // Exact: 28 bits.
        let times = |values: &[f64], factor: fn(f64) -> f64| {
            let chunks = values.chunks(k).flat_map(|row| row.chunks(CHUNK)).zip(&factors);
            chunks.flat_map(|(chunk, of)| chunk.iter().map(move |value| value * factor(*of))).collect::<Vec<_>>()
        };
        [times(&values, |factor| factor), times(&magnitudes, f64::abs)]
    });
    Exact { rows: count, values, magnitudes, scaled }
}

/// The exact values of some rows, `[rows, K]`; of none, what is there.
fn decode(matrix: &HostMatrix, shape: Shape, group: usize, rows: impl Iterator<Item = Option<usize>>, out: &mut [f64]) {
    let mut exact = vec![0.0f32; shape.k];
    for (row, out) in rows.zip(out.chunks_mut(shape.k)) {
        let Some(row) = row else { continue };
        matrix.decode_row(shape, group, row, &mut exact);
        out.iter_mut().zip(&exact).for_each(|(out, value)| *out = f64::from(*value));
    }
}

/// Σ a·b and Σ |a·b| of all rows and the given columns, the columns spread over so many threads.
fn multiply(
    operands: &HostOperands,
    a: &Exact,
    b: &HostMatrix,
    group: usize,
    columns: &[usize],
    threads: usize,
) -> Result<Products> {
    let k = operands.problem.depth() as usize;
    let steps: Vec<&[usize]> = columns.chunks(STEP).collect();
    let is_rounded = operands.is_rounded();
    let tiles = crew::each(&steps, threads, |step| {
        let mut decoded = vec![0.0; step.len() * k];
        decode(b, operands.b_shape(), group, step.iter().copied().map(Some), &mut decoded);
        let [values, magnitudes] = a.multiplied();
        let value = product(k, 0..k, values, &decoded);
        decoded.iter_mut().for_each(|value| *value = value.abs());
        let sums = if is_rounded { chunk_sums(k, &a.magnitudes, &decoded) } else { ChunkSums::default() };
        // Chunks that are scaled add up to something else.
        let is_added = is_rounded && a.scaled.is_none();
        let magnitude = if is_added { sums.total } else { product(k, 0..k, magnitudes, &decoded) };
        let grains = if is_rounded { grains(k, &decoded) } else { Vec::new() };
        ControlFlow::Continue(Tile { width: step.len(), value, magnitude, chunks: sums.largest, grains })
    });
    let (mut value, mut magnitude) = (vec![0.0; a.rows * columns.len()], vec![0.0; a.rows * columns.len()]);
    let mut chunks = if is_rounded { vec![0.0; value.len()] } else { Vec::new() };
    let mut b_grains = vec![0.0; columns.len()];
    for (nth, tile) in tiles {
        let (first, width) = (nth * STEP, tile.width);
        for row in 0..a.rows {
            let to = row * columns.len() + first..row * columns.len() + first + width;
            let from = row * width..(row + 1) * width;
            value[to.clone()].copy_from_slice(&tile.value[from.clone()]);
            magnitude[to.clone()].copy_from_slice(&tile.magnitude[from.clone()]);
            if is_rounded {
                chunks[to].copy_from_slice(&tile.chunks[from]);
            }
        }
        if is_rounded {
            b_grains[first..first + width].copy_from_slice(&tile.grains);
        }
    }
    let products = Products::from_parts(a.rows, columns.len(), k, value, magnitude)?;
    let products = if a.scaled.is_some() { products.rounded_along_k() } else { products };
    Ok(if is_rounded { products.cut(chunks, &grains(k, &a.values), &b_grains) } else { products })
}

/// Products of all rows with some columns.
struct Tile {
    width: usize,
    value: Vec<f64>,
    magnitude: Vec<f64>,
    /// Of e4m3 products.
    chunks: Vec<f64>,
    grains: Vec<f64>,
}

/// Of each element Σ |a·b|: the largest of 128 of K, and of all.
#[derive(Default)]
struct ChunkSums {
    largest: Vec<f64>,
    total: Vec<f64>,
}

/// Those of magnitudes `[rows, K]`.
fn chunk_sums(k: usize, a: &[f64], b: &[f64]) -> ChunkSums {
    let of = |first: usize| product(k, first..k.min(first + CHUNK), a, b);
    let largest = of(0);
    let mut sums = ChunkSums { total: largest.clone(), largest };
    for first in (CHUNK..k).step_by(CHUNK) {
        for ((largest, total), chunk) in sums.largest.iter_mut().zip(&mut sums.total).zip(of(first)) {
            *largest = largest.max(chunk);
            *total += chunk;
        }
    }
    sums
}

fn grains(k: usize, values: &[f64]) -> Vec<f64> {
    values.chunks(k).map(|row| grain(row.iter().copied())).collect()
}

/// A·Bᵀ in f64 of some of K: A `[m, k]`, B `[n, k]`, result `[m, n]`, all row-major and whole rows.
fn product(k: usize, of: Range<usize>, a: &[f64], b: &[f64]) -> Vec<f64> {
    let (m, n) = (a.len() / k, b.len() / k);
    let mut c = vec![0.0; m * n];
    if m == 0 || n == 0 {
        return c;
    }
    let (a, b, length) = (&a[of.start..], &b[of.start..], of.len());
    let (k_step, n_step) = (k as isize, n as isize);
    let (a, b, out) = (a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
    // SAFETY: with these strides it reads the first `length` of each k elements of m rows of `a` and n of `b`, which are there
    // by the division above, as the last begins `of.start` before its row ends and k ≥ `of.end`, and writes the m·n of `c`.
    unsafe { matrixmultiply::dgemm(m, length, n, 1.0, a, k_step, 1, b, 1, k_step, 0.0, out, n_step, 1) };
    c
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spread;
    use crate::oracle::Expected;
    use warpsmith::format::Format;
    use warpsmith::spec::{Activation, Problem};

    #[test]
    fn it_is_the_obvious_one() {
        let dual = Problem::dual_gemm(Activation::Silu).n(144).k(128);
        let moved = dual.grouped(3).gathered().slots();
        let rounded = dual.k(320).a(Format::E4m3).prepared();
        let along_k = rounded.k_factors();
        let problems = [(dual, &[5][..]), (dual.grouped(3), &[4, 0, 3]), (moved, &[2, 9, 4])];
        let problems = problems.into_iter().chain([(rounded, &[6][..]), (rounded.grouped(2), &[5, 2])]);
        let problems = problems.chain([(along_k, &[7][..]), (along_k.grouped(2).gathered(), &[3, 4])]);
        for (problem, rows) in problems {
            let operands = HostOperands::random(&problem, rows, Spread::Every, 3);
            let (found, obvious) = (of(&operands).unwrap(), operands.reference().unwrap());
            assert_eq!((found.m(), found.n(), found.output()), (obvious.m(), obvious.n(), obvious.output()));
            for (found, obvious) in found.elements().iter().zip(obvious.elements()) {
                if found.is_untouched() && obvious.is_untouched() {
                    continue;
                }
                assert!((found.value - obvious.value).abs() <= 1e-12 * obvious.value.abs().max(1e-3));
                assert!((found.bound - obvious.bound).abs() <= 1e-9 * obvious.bound);
            }
            let some = in_columns(&operands, &[3, 100]).unwrap();
            let same = |one: Expected, other: Expected| one == other || (one.is_untouched() && other.is_untouched());
            assert!(some.n() == 2 && same(some.elements()[1], found.elements()[100]));
        }
        let operands = HostOperands::random(&dual, &[1], Spread::Every, 3);
        assert!(in_columns(&operands, &[144]).unwrap_err().is_data());
    }

    #[test]
    fn columns_are_spread_within_the_work_allowed() {
        let operands = HostOperands::random(&Problem::gemm().n(160).k(64), &[2], Spread::Every, 3);
        assert_eq!(columns_within(&operands, f64::INFINITY).len(), 160);
        let work = 2.0 * operands.problem.flop(2);
        assert_eq!(columns_within(&operands, work / 10.0), (0..16).map(|step| step * 10).collect::<Vec<_>>());
    }
}
