//! Whole layers: what comes out, and how far a correct chain of kernels may be from it.
//!
//! A kernel in the middle takes what the one before has rounded. So a bound is carried along:
//!
//! * **h**, between up and down, is an element of a [dual GEMM](super::dual_gemm) or a [GEMM](super::gemm): within its bound
//!   there, half an ulp of the 16-bit format included.
//! * **Products of e4m3 values:** x is what the quantiser makes of it, which is exact, and weights are what they are rounded to:
//!   then up is as in the [module's](super) bound for such products. h' lies within [h − bₕ, h + bₕ] and is a number of the 16-bit
//!   format, so that its ends are the least and the largest of these in there, often one number. The row's factor f = max|h'|/448
//!   rises with that maximum, whose ends are those of all elements of the row. Where both ends of f are one number, h'/f and its
//!   byte rise with h', so that the byte lies between those of the ends, and is known where they are equal. Where they are not,
//!   `|byte·f − h'| ≤ max(2⁻⁴·|h'|, 2⁻¹⁰·f) + 2⁻²³·|h'|`: half the distance of neighbours, which is an eighth of their power of
//!   two, and 2⁻⁹ below 2⁻⁶, for the largest f; and what f and the quotient round in f32. The center of what may be is then the
//!   value, half of it bₕ. Where all bytes of a row are known, sums of 128 are exact as far as these allow.
//! * **Products of NVFP4 values:** x is what the quantiser makes of all tokens of a call, which is exact. The factor of h is that of
//!   its largest magnitude M, over all rows of all experts: M lies between the largest of |h| − bₕ and the largest of |h| + bₕ and is a
//!   number of the 16-bit format, which are few, often one. Under each of these factors the scale of a block rises with the
//!   largest of the block, as [`RightScales`](super::RightScales) has it, and under each scale that is right the code rises with h': so code
//!   times scale lies between those of the ends, and is known where they are equal. What may come of down is then what may
//!   come of it under one of the factors. Products and sums are those of NVFP4 values, α times the factor is rounded to f32.
//! * **down:** Σ w·h with h off by bₕ is off by Σ|w|·bₕ, beside what the accumulation of terms of at most |w|·(|h| + bₕ) adds, and
//!   half an ulp of the format: y ± b_y.
//! * **combine:** a weight w ± b_w (of a router, see [`route`](super::route)) times y ± b_y is off by |w|·b_y + |y|·b_w + b_w·b_y. Each
//!   step, a fused multiply-add in the order of the slots, rounds once in f32, as do the sums with the shared expert's row
//!   (which has a bound like y, and in some models a weight) and with the residual (which is exact). Then half an ulp of the format.
//!
//! * **a shared expert's gate:** with u = 2⁻²⁴, a product of H terms is off by ⌈H/1024⌉·8 + 8 roundings of u·Σ|x·w| at most, of which
//!   a sigmoid keeps a quarter, and adds 12 u of its own.
//! * **weighted inputs** are no matter of bounds: a weight's bits are stated (see [`route`](super::route)), and so is each element
//!   times it.
//!
//! Which experts a token goes to is no matter of bounds: the router's choice is exact.

mod e4m3;
mod nvfp4;
mod row;
mod taken;

use super::combine::rounded;
use super::finish::Sum;
use super::uncertain::Uncertain;
use super::{Expected, Matrix, Reference, Scaling, dual_gemm, gemm, grain};
use row::Row;
pub use taken::Taken;
use taken::times;
use warpsmith::format::Format;
use warpsmith::internal::Raise;
use warpsmith::spec::Activation;
use warpsmith::{Error, Result};

/// The weights of one product, `[N, K]`.
#[derive(Clone, Debug)]
pub struct Weight<'a> {
    /// Code times block scale, rounded to e4m3 where that is multiplied.
    pub values: Matrix<'a>,
    /// All else that multiplies it, and what is added.
    pub scaling: Scaling<'a>,
}

/// An expert, or an MLP. Where only some columns of its result are asked for, `down` has the rows of these alone.
#[derive(Clone, Debug)]
pub struct Expert<'a> {
    /// `[I, H]`, if there is a gate.
    pub gate: Option<Weight<'a>>,
    /// `[I, H]`.
    pub up: Weight<'a>,
    /// `[H, I]`.
    pub down: Weight<'a>,
}

/// What all experts of a layer share.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Of the gate, or of the only first product.
    pub activation: Activation,
    /// The format of x, h, the rows of experts and the result.
    pub format: Format,
    /// What x and h become before products take them, e4m3 or nvfp4, if they do not stay what they are.
    pub rounded: Option<Format>,
}

/// What all tokens have besides.
#[derive(Clone, Copy, Debug)]
pub struct SharedExpert<'a> {
    /// Its weights.
    pub expert: &'a Expert<'a>,
    /// What its row of each token is multiplied by, and how far that may be off, `[tokens]`; empty, where it is added as it is.
    pub weights: &'a [(f64, f64)],
    /// What it gets, where that is not what the experts get.
    pub x: Option<&'a Matrix<'a>>,
}

impl<'a> SharedExpert<'a> {
    /// Added as it is, of the same tokens.
    #[must_use]
    pub fn plain(expert: &'a Expert<'a>) -> Self {
        Self { expert, weights: &[], x: None }
    }
}

/// What is added up for some tokens.
#[derive(Clone, Copy, Debug)]
pub struct Chosen<'a> {
    /// The experts of each token, `[tokens, k]`; less than 0 for none.
    pub ids: &'a [i32],
    /// Their weights, and how far each may be off, `[tokens, k]`.
    pub weights: &'a [(f64, f64)],
    /// `[tokens, columns]`; empty, where there is none.
    pub residual: &'a [f32],
}

/// What an MLP should give for the rows of `x`, which are all of a call: `[rows, N of down]`.
///
/// # Errors
/// Data, if shapes do not fit, or too little is known of what is between up and down and is rounded; those of [`dual_gemm`].
pub fn mlp(x: &Matrix<'_>, expert: &Expert<'_>, kind: Kind) -> Result<Reference> {
    let h = between(&Taken::new(x, kind.rounded)?, expert, kind)?;
    let factors = kind.factors([&h].into_iter())?;
    last(&h, &expert.down, kind, &factors)
}

impl Kind {
    /// What all rows between up and down together may be multiplied with, where that is one factor.
    fn factors<'a>(&self, all: impl Iterator<Item = &'a Reference>) -> Result<Vec<f32>> {
        if self.rounded == Some(Format::Nvfp4) { nvfp4::factors(all, self.format) } else { Ok(Vec::new()) }
    }
}

/// What is between up and down.
fn between(x: &Taken<'_>, expert: &Expert<'_>, kind: Kind) -> Result<Reference> {
    let Kind { activation, format, .. } = kind;
    let (up, of_up) = x.products(&expert.up)?;
    match &expert.gate {
        None => gemm(&up, of_up, activation, format),
        Some(gate) => {
            let (gate, of_gate) = x.products(gate)?;
            dual_gemm(&gate, &up, [of_gate, of_up], activation, format)
        }
    }
}

/// What down makes of it; `factors` are those that it may have.
fn last(h: &Reference, down: &Weight<'_>, kind: Kind, factors: &[f32]) -> Result<Reference> {
    let Kind { format, rounded, .. } = kind;
    let Weight { values, scaling } = down;
    scaling.check_columns(values.rows())?;
    if values.k() != h.n() {
        return Err(Error::data(format!("h has {} columns and down has k = {}", h.n(), values.k())));
    }
    let grain_of = |column: usize| grain(values.row(column).iter().map(|w| f64::from(*w)));
    let grains: Vec<f64> = match rounded {
        Some(Format::E4m3) => (0..values.rows()).map(grain_of).collect(),
        _ => Vec::new(),
    };
    let mut elements = Vec::with_capacity(h.m() * values.rows());
    for h in h.elements().chunks(h.n().max(1)) {
        // Under each factor, with what that does to α.
        let rows: Vec<(Row, Scaling<'_>)> = match rounded {
            Some(Format::E4m3) => vec![(Row::quantised(h, format)?, *scaling)],
            Some(Format::Nvfp4) => {
                let row = |factor: &f32| Ok((Row::coded(h, format, *factor)?, times(*scaling, *factor)));
                factors.iter().map(row).collect::<Result<_>>()?
            }
            _ => vec![(Row::plain(h), *scaling)],
        };
        let element = |column: usize| {
            let grain = grains.get(column).copied().unwrap_or(0.0);
            let of = |(row, scaling): &(Row, Scaling<'_>)| {
                row.times(values.row(column), grain).scaled(scaling, column).finished(format)
            };
            rows.iter().map(of).reduce(nvfp4::hull)
        };
        let known = (0..values.rows()).map(|column| element(column).ok_or_else(|| Error::data("h has no factor")));
        elements.extend(known.collect::<Result<Vec<_>>>()?);
    }
    Reference::new(h.m(), values.rows(), format, elements)
}

/// Each row times its weight, rounded to f32 and to `format`: what experts get whose inputs are weighted.
///
/// # Errors
/// Data, if there are not as many weights as rows.
pub fn weighed(x: &Matrix<'_>, weights: &[f32], format: Format) -> Result<Matrix<'static>> {
    if weights.len() != x.rows() {
        return Err(Error::data(format!("{} weights for {} rows", weights.len(), x.rows())));
    }
    let values = weights.iter().enumerate().flat_map(|(row, weight)| x.row(row).iter().map(move |x| x * weight));
    Matrix::new(x.rows(), x.k(), values.map(|value| rounded(format, value)).collect::<Vec<_>>())
}

/// What a gate multiplies the shared expert's row of each token by, and how far that may be off: the sigmoid of the token's
/// product with a vector `[H]`.
///
/// # Errors
/// Data, if the vector has not as many elements as a token.
pub fn gates(x: &Matrix<'_>, vector: &[f32]) -> Result<Vec<(f64, f64)>> {
    /// Of f32, and of the sums of a block (`templates/simt/shared_gate/sigmoid.cuh`).
    const U: f64 = 1.0 / (1 << 24) as f64;
    const BLOCK: usize = 1024;
    if vector.len() != x.k() {
        return Err(Error::data(format!("a gate of {} elements for tokens of {}", vector.len(), x.k())));
    }
    let roundings = (8 * x.k().div_ceil(BLOCK) + 8) as f64;
    let of = |row: &[f32]| {
        let terms = row.iter().zip(vector).map(|(x, w)| f64::from(*x) * f64::from(*w));
        let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), term: f64| (sum + term, size + term.abs()));
        let value = 1.0 / (1.0 + (-sum).exp());
        // Terms of the second order, and what f32 has no more of.
        (value, (0.25 * roundings * size + 12.0 * value) * U * 1.01 + f64::from(f32::MIN_POSITIVE))
    };
    Ok((0..x.rows()).map(|row| of(x.row(row))).collect())
}

/// Σ w·h, where each h is off by its bound at most.
fn sum(h: &[Expected], weights: &[f32]) -> Sum {
    let nothing = Sum { value: 0.0, magnitude: 0.0, carried: 0.0, terms: h.len() };
    // What a zero is multiplied with may have overflowed.
    let terms = h.iter().zip(weights).filter(|(h, w)| **w != 0.0 || !h.value.is_finite());
    terms.fold(nothing, |sum, (h, w)| {
        let w = f64::from(*w);
        Sum {
            value: sum.value + w * h.value,
            magnitude: sum.magnitude + w.abs() * (h.value.abs() + h.bound),
            carried: sum.carried + w.abs() * h.bound,
            ..sum
        }
    })
}

/// What a mixture of experts should give for the tokens `x`, `[tokens, N of down]`; `expert` gives each that is chosen, once
/// (and where none is, the first).
///
/// # Errors
/// Data, if shapes do not fit; those of `expert` and [`mlp`].
pub fn moe<'e>(
    x: &Matrix<'_>,
    chosen: &Chosen<'_>,
    expert: impl Fn(usize) -> Result<Expert<'e>>,
    shared: Option<SharedExpert<'_>>,
    kind: Kind,
) -> Result<Reference> {
    let (tokens, slots) = (x.rows(), chosen.ids.len());
    let k = slots / tokens.max(1);
    if k * tokens != slots || chosen.weights.len() != slots {
        let weights = chosen.weights.len();
        return Err(Error::data(format!("{slots} ids and {weights} weights for {tokens} tokens")));
    }
    let mut rows: Vec<Option<Vec<Expected>>> = vec![None; slots];
    let mut hit: Vec<i32> = chosen.ids.iter().copied().filter(|id| *id >= 0).collect();
    hit.sort_unstable();
    hit.dedup();
    if let Some(shared) = shared
        && !(shared.weights.is_empty() || shared.weights.len() == tokens)
    {
        return Err(Error::data(format!("{} weights of a shared expert for {tokens} tokens", shared.weights.len())));
    }
    let mut columns = shared.map(|shared| shared.expert.down.values.rows());
    let (taken, mut all) = (Taken::new(x, kind.rounded)?, Vec::new());
    for id in hit {
        let own: Vec<usize> = (0..slots).filter(|slot| chosen.ids[*slot] == id).collect();
        let expert = expert(id as usize)?;
        let h = between(&taken.rows(own.iter().map(|slot| slot / k))?, &expert, kind)?;
        if *columns.get_or_insert(expert.down.values.rows()) != expert.down.values.rows() {
            let columns = expert.down.values.rows();
            return Err(Error::data(format!("expert {id} has {columns} columns, others have another number")));
        }
        all.push((own, h, expert.down));
    }
    // Of the rows of all experts.
    let factors = kind.factors(all.iter().map(|(_, h, _)| h))?;
    for (own, h, down) in all {
        let found = last(&h, &down, kind, &factors)?;
        for (slot, row) in own.into_iter().zip(found.elements().chunks(found.n().max(1))) {
            rows[slot] = Some(row.to_vec());
        }
    }
    // Where no expert is hit the result is zeros all the same.
    let columns = columns.map_or_else(|| expert(0).map(|expert| expert.down.values.rows()), Ok)?;
    let of_shared = shared.map_or(&[][..], |shared| shared.weights);
    let shared = shared.map(|shared| mlp(shared.x.unwrap_or(x), shared.expert, kind)).transpose()?;
    if shared.as_ref().is_some_and(|shared| shared.m() != tokens) {
        return Err(Error::data(format!("a shared expert of other tokens than these {tokens}")));
    }
    if !chosen.residual.is_empty() && chosen.residual.len() != tokens * columns {
        return Err(Error::data(format!("a residual of {} values for {tokens}×{columns}", chosen.residual.len())));
    }
    let mut elements = Vec::with_capacity(tokens * columns);
    for at in 0..tokens * columns {
        let (token, column) = (at / columns, at % columns);
        let mut all = Uncertain { value: 0.0, error: 0.0 };
        let slots = token * k..(token + 1) * k;
        for (row, (weight, off)) in rows[slots.clone()].iter().zip(&chosen.weights[slots]) {
            if let Some(row) = row {
                all = added(all, weighted(row[column], (*weight, *off)));
            }
        }
        if let Some(shared) = &shared {
            let weight = of_shared.get(token).copied().unwrap_or((1.0, 0.0));
            all = added(all, weighted(shared.elements()[at], weight));
        }
        let all = chosen.residual.get(at).map_or(all, |residual| all.plus(*residual));
        elements.push(all.finished(kind.format));
    }
    Reference::new(tokens, columns, kind.format, elements)
}

/// A row's element times a weight.
fn weighted(row: Expected, (weight, off): (f64, f64)) -> Uncertain {
    let Expected { value, bound } = row;
    Uncertain { value: weight * value, error: weight.abs() * bound + value.abs() * off + off * bound }
}

/// The sum, rounded.
fn added(a: Uncertain, b: Uncertain) -> Uncertain {
    Uncertain { value: a.value + b.value, error: a.error + b.error }.rounded()
}
