//! The host reference of large problems: exact operands, products in f64 by a matrix library, then the oracle.

use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use warpsmith::oracle::{Products, Reference};
use warpsmith::tune::{HostMatrix, HostOperands, Shape};

/// Columns that one step multiplies: their exact values take some megabytes.
const STEP: usize = 64;

/// What the result should be in the given columns: `[m, columns]`, value and bound of every element.
pub fn reference(operands: &HostOperands, columns: &[usize]) -> warpsmith::Result<Reference> {
    operands.check()?;
    operands.reference_from(columns.len(), |group, rows| {
        let a = exact_rows(operands, rows);
        operands.b.iter().map(|b| multiply(operands, &a, b, group, columns)).collect()
    })
}

/// Every column, or as many, evenly spread, as take at most `flop` floating-point operations to check.
pub fn columns_within(operands: &HostOperands, flop: f64) -> Vec<usize> {
    // Values and magnitudes.
    let work = 2.0 * operands.problem.flop(operands.m.into());
    let step = (work / flop).ceil().max(1.0) as usize;
    (0..operands.problem.columns() as usize).step_by(step).collect()
}

/// Values and magnitudes of some rows of A, `[rows, K]`.
struct Exact {
    rows: usize,
    values: Vec<f64>,
    magnitudes: Vec<f64>,
}

fn exact_rows(operands: &HostOperands, rows: Range<usize>) -> Exact {
    let (count, k) = (rows.len(), operands.problem.depth() as usize);
    let mut values = vec![0.0; count * k];
    decode(&operands.a, operands.a_shape(), 0, rows, &mut values);
    let magnitudes = values.iter().map(|value| value.abs()).collect();
    Exact { rows: count, values, magnitudes }
}

/// The exact values of some rows, `[rows, K]`.
fn decode(matrix: &HostMatrix, shape: Shape, group: usize, rows: impl Iterator<Item = usize>, out: &mut [f64]) {
    let mut exact = vec![0.0f32; shape.k];
    for (row, out) in rows.zip(out.chunks_mut(shape.k)) {
        matrix.decode_row(shape, group, row, &mut exact);
        out.iter_mut().zip(&exact).for_each(|(out, value)| *out = f64::from(*value));
    }
}

/// Σ a·b and Σ |a·b| of all rows and the given columns, the columns spread over the cores.
fn multiply(
    operands: &HostOperands,
    a: &Exact,
    b: &HostMatrix,
    group: usize,
    columns: &[usize],
) -> warpsmith::Result<Products> {
    let k = operands.problem.depth() as usize;
    let steps: Vec<&[usize]> = columns.chunks(STEP).collect();
    let (next, tiles) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        let mut decoded = vec![0.0; STEP * k];
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(step) = steps.get(index) else { break };
            let decoded = &mut decoded[..step.len() * k];
            decode(b, operands.b_shape(), group, step.iter().copied(), decoded);
            let value = product(a.rows, k, &a.values, step.len(), decoded);
            decoded.iter_mut().for_each(|value| *value = value.abs());
            let magnitude = product(a.rows, k, &a.magnitudes, step.len(), decoded);
            tiles.lock().unwrap_or_else(PoisonError::into_inner).push((index * STEP, step.len(), value, magnitude));
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(work);
        }
    });
    let (mut value, mut magnitude) = (vec![0.0; a.rows * columns.len()], vec![0.0; a.rows * columns.len()]);
    for (first, width, values, magnitudes) in tiles.into_inner().unwrap_or_else(PoisonError::into_inner) {
        for row in 0..a.rows {
            let to = row * columns.len() + first..row * columns.len() + first + width;
            value[to.clone()].copy_from_slice(&values[row * width..][..width]);
            magnitude[to].copy_from_slice(&magnitudes[row * width..][..width]);
        }
    }
    Products::from_parts(a.rows, columns.len(), k, value, magnitude)
}

/// A·Bᵀ in f64: A `[m, k]`, B `[n, k]`, result `[m, n]`, all row-major.
fn product(m: usize, k: usize, a: &[f64], n: usize, b: &[f64]) -> Vec<f64> {
    assert!(a.len() == m * k && b.len() == n * k);
    let mut c = vec![0.0; m * n];
    let (k_step, n_step) = (k as isize, n as isize);
    // SAFETY: the lengths above are those that the strides walk, and `c` has m·n elements.
    unsafe {
        matrixmultiply::dgemm(
            m,
            k,
            n,
            1.0,
            a.as_ptr(),
            k_step,
            1,
            b.as_ptr(),
            1,
            k_step,
            0.0,
            c.as_mut_ptr(),
            n_step,
            1,
        );
    }
    c
}
