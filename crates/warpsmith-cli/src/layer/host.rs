//! A layer by the oracle: exact but for its result's rounding.

use warpsmith::format::Format;
use warpsmith::spec::Activation;
use warpsmith_checkpoint::{Mlp, Module, Moe, Product};
use warpsmith_tune::oracle::layer::{self, Chosen, Expert, Kind, SharedExpert, Weight};
use warpsmith_tune::oracle::{Matrix, Products, Reference, Scaling, gemm};

use super::Job;
use super::io::Tokens;
use super::routing::{self, Routing};
use crate::run::bytes_of;
use crate::shared::Result;

/// The whole result, in the tokens' format.
pub(super) fn result(job: &Job<'_>) -> Result<Vec<u8>> {
    let all: Vec<usize> = (0..job.tokens.count).collect();
    Ok(bytes_of(&reference(job, &all)?))
}

/// What should come out for some tokens.
pub(super) fn reference(job: &Job<'_>, which: &[usize]) -> Result<Reference> {
    let Tokens { columns, format, count, values } = job.tokens;
    let some: Vec<f32> = which.iter().flat_map(|token| &values[token * columns..][..*columns]).copied().collect();
    let x = Matrix::new(which.len(), *columns, some)?;
    match job.module {
        Module::Linear(of) => {
            let held = of.row_factors();
            let weight = weight(of, held.as_deref())?;
            Ok(gemm(&Products::new(&x, &weight.values)?, weight.scaling, Activation::None, *format)?)
        }
        Module::Mlp(of) => Ok(layer::mlp(&x, &expert(of)?, kind(of.activation(), *format))?),
        Module::Moe(of) => {
            let Some(routing) = &job.routing else { return Err("experts without a routing".into()) };
            experts(of, &x, &routing.of(which, *count), job.tokens)
        }
        _ => Err("no such layer is computed".into()),
    }
}

/// What a checkpoint's layers are computed by: products of 16-bit values.
fn kind(activation: Activation, format: Format) -> Kind {
    Kind { activation, format, rounded: None }
}

fn experts(of: &Moe<'_>, x: &Matrix<'_>, routing: &Routing, tokens: &Tokens) -> Result<Reference> {
    let Some(first) = of.experts().first() else { return Err("a layer without experts".into()) };
    let kind = kind(first.activation(), tokens.format);
    let routing::Chosen { ids, mut weights, stated } = routing.chosen(of, x.rows())?;
    let shared = of.shared().map(expert).transpose()?;
    let of_shared = match of.shared_gate() {
        None => Vec::new(),
        Some(gate) => layer::gates(x, &gate.dequantised()?)?,
    };
    // What experts get, where that is weighted and not what they give.
    let mut scaled = None;
    if of.rule().weighs_inputs() {
        if weights.len() != x.rows() {
            return Err("experts whose tokens are weighted are computed for one expert a token".into());
        }
        scaled = Some(layer::weighed(x, &stated, tokens.format)?);
        weights.fill((1.0, 0.0));
    }
    let chosen = Chosen { ids: &ids, weights: &weights, residual: &[] };
    let shared = shared.as_ref().map(|expert| SharedExpert { expert, weights: &of_shared, x: Some(x) });
    let one = |id: usize| expert(&of.experts()[id]);
    Ok(layer::moe(scaled.as_ref().unwrap_or(x), &chosen, one, shared, kind)?)
}

/// Logits of the checkpoint's router, rounded to f32 once.
pub(super) fn logits(of: &Moe<'_>, tokens: &Tokens) -> Result<Vec<f32>> {
    let Some(router) = of.router() else {
        return Err("the checkpoint has no router for this layer: give --logits, or --ids and --weights".into());
    };
    let x = Matrix::new(tokens.count, tokens.columns, tokens.values.as_slice())?;
    Ok(projected(router, &x)?.into_iter().map(|logit| logit as f32).collect())
}

/// x·Wᵀ + b.
fn projected(product: &Product<'_>, x: &Matrix<'_>) -> Result<Vec<f64>> {
    let values = product.dequantised()?;
    let bias = product.bias().map_or(&[][..], |bias| &bias.values);
    let mut all = Vec::with_capacity(x.rows() * product.rows());
    for row in 0..x.rows() {
        for (column, weights) in values.chunks(product.columns()).enumerate() {
            let sum: f64 = x.row(row).iter().zip(weights).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum();
            all.push(sum + bias.get(column).map_or(0.0, |bias| f64::from(*bias)));
        }
    }
    Ok(all)
}

fn expert<'a>(of: &'a Mlp<'_>) -> warpsmith::Result<Expert<'a>> {
    let weight = |product: &'a Product<'_>| weight(product, None);
    Ok(Expert { gate: of.gate().map(weight).transpose()?, up: weight(of.up())?, down: weight(of.down())? })
}

/// Code times block scale, and apart from that all that multiplies it.
fn weight<'a>(of: &'a Product<'_>, row_factors: Option<&'a [f32]>) -> warpsmith::Result<Weight<'a>> {
    let mut values = Vec::with_capacity(of.rows() * of.columns());
    for part in of.parts() {
        for row in 0..part.rows() {
            values.extend(part.values(row)?);
        }
    }
    // Where rows have factors, they have all of it.
    let alpha = match (row_factors, of.parts()) {
        (None, [first, ..]) => first.factor(),
        _ => 1.0,
    };
    let bias = of.bias().map(|bias| bias.values.as_slice());
    Ok(Weight {
        values: Matrix::new(of.rows(), of.columns(), values)?,
        scaling: Scaling { alpha, row_scale: row_factors, bias },
    })
}
