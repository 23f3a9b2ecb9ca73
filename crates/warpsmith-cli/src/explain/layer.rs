//! The kernels of a layer, each beside what its step takes at least.

use std::iter::repeat;

use serde::Serialize;
use warpsmith::internal::build::Experts;
use warpsmith::internal::pick::heuristic::{load, predict_for, with_rows};
use warpsmith::pick::{Picker, Policy};
use warpsmith::spec::{Arch, Problem, Quantise};
use warpsmith_layers::{LayerConfig, Step};
use warpsmith_tune::layer::Work;

use crate::shared::{Result, say};

/// A layer for some tokens.
#[derive(Serialize)]
pub struct Told {
    layer: String,
    tokens: u32,
    /// Experts that have tokens, as expected, if there are experts.
    experts_hit: Option<u32>,
    floor_us: f64,
    /// Of all kernels that the model knows of.
    predicted_us: f64,
    steps: Vec<Part>,
}

/// A step, or the whole of a layer that has none.
#[derive(Serialize)]
struct Part {
    step: String,
    floor_us: f64,
    kernels: Vec<Chosen>,
}

#[derive(Serialize)]
struct Chosen {
    problem: String,
    /// None of a router, a combiner or a quantiser, of which there is one.
    variant: Option<String>,
    /// How it was chosen.
    origin: Option<String>,
    /// None where there is no model.
    predicted_us: Option<f64>,
}

impl Told {
    /// As an engine with this picker would have it.
    pub fn new(config: &LayerConfig, tokens: u32, picker: &Picker, arch: &Arch) -> Result<Self> {
        let problems: Vec<Problem> = config.problems(tokens)?.iter().map(|problem| problem.native(arch)).collect();
        // What scales the factors of each one's weights, if anything does.
        let scalers = config.scalers()?.into_iter().map(Some).chain(repeat(None));
        let products: Vec<_> = problems.iter().zip(scalers).collect();
        let hit = match (config, &problems[..]) {
            (LayerConfig::Moe(_), [up, ..]) => {
                Some(with_rows(&load(up, up.m_limit().unwrap_or(tokens))).round() as u32)
            }
            _ => None,
        };
        let floor = |only| Work::of(config, tokens, hit.unwrap_or(1).max(1), only).floor_us(arch);
        let chosen = |problem: &Problem| -> Result<Chosen> {
            let m = problem.m_limit().unwrap_or(tokens);
            let choice = picker.choose(problem, m)?;
            Ok(Chosen {
                problem: problem.to_string(),
                variant: Some(choice.spec().variant().to_string()),
                origin: Some(choice.origin().to_string()),
                predicted_us: Some(predict_for(choice.spec(), &load(problem, m)).us),
            })
        };
        // What does all of few tokens in one launch, if anything does.
        let few = match config {
            LayerConfig::Moe(of) if picker.policy() != Policy::BatchInvariant => {
                let few = of.few_tokens(picker.arch()).into_iter().next();
                few.filter(|few| few.tokens_on(picker.arch()).is_ok_and(|most| tokens <= most))
            }
            _ => None,
        };
        let only_one =
            |spelling: String| Ok(Chosen { problem: spelling, variant: None, origin: None, predicted_us: None });
        let whole = |few: &Experts| -> Result<Chosen> {
            let predicted_us = Some(few.predicted_us(picker.arch(), tokens)?);
            only_one(few.to_string()).map(|chosen| Chosen { predicted_us, ..chosen })
        };
        let part = |step: Option<Step>| -> Result<Part> {
            let products = step.map_or(&products[..], |step| of_step(&products, step));
            let before = quantisers(config, step).into_iter().chain(repeat(None));
            let products = products.iter().zip(before).flat_map(|((problem, scaler), quantiser)| {
                let quantiser = quantiser.map(|quantiser| only_one(quantiser.to_string()));
                let scaler = scaler.map(|scaler| only_one(scaler.to_string()));
                quantiser.into_iter().chain(scaler).chain([chosen(problem)])
            });
            let kernels: Result<Vec<_>> = match (config, step) {
                (LayerConfig::Moe(of), Some(Step::Route)) => vec![only_one(of.route().to_string())],
                (LayerConfig::Moe(of), Some(Step::Combine)) => vec![only_one(of.combine().to_string())],
                (_, Some(Step::Experts)) => few.iter().map(whole).collect(),
                (LayerConfig::Moe(of), Some(Step::Up)) => {
                    let weigh = of.weigh().map(|weigh| only_one(weigh.to_string()));
                    weigh.into_iter().chain(products).collect()
                }
                _ => products.collect(),
            }
            .into_iter()
            .collect();
            let name = step.map_or_else(|| "layer".to_owned(), |step| format!("{step:?}").to_lowercase());
            Ok(Part { step: name, floor_us: floor(step), kernels: kernels? })
        };
        let which: Vec<Step> = match &few {
            Some(_) => Step::of_few(config).collect(),
            None => Step::of(config).collect(),
        };
        let mut steps = which.into_iter().map(|step| part(Some(step))).collect::<Result<Vec<_>>>()?;
        if steps.is_empty() {
            steps.push(part(None)?);
        }
        let predicted = steps.iter().flat_map(|part| &part.kernels).filter_map(|kernel| kernel.predicted_us);
        let predicted_us = predicted.sum();
        Ok(Self { layer: config.to_string(), tokens, experts_hit: hit, floor_us: floor(None), predicted_us, steps })
    }

    /// A line for each kernel.
    pub fn show(&self) -> Result<()> {
        let Self { layer, tokens, experts_hit, floor_us, predicted_us, steps } = self;
        let hit = experts_hit.map_or(String::new(), |hit| format!(", {hit} experts hit"));
        say!("{layer}, {tokens} tokens{hit}: predicted {predicted_us:.2} us for its products, floor {floor_us:.2} us")?;
        say!("{:>8} {:>9} {:>12}  kernel", "step", "floor us", "predicted us")?;
        for Part { step, floor_us, kernels } in steps {
            for (at, Chosen { problem, variant, origin, predicted_us }) in kernels.iter().enumerate() {
                // The floor is that of the step.
                let (step, floor) =
                    if at == 0 { (step.as_str(), format!("{floor_us:.2}")) } else { ("", String::new()) };
                let predicted = predicted_us.map_or("-".to_owned(), |us| format!("{us:.2}"));
                let kernel = match (variant, origin) {
                    (Some(variant), Some(origin)) => format!("{problem}/{variant} ({origin})"),
                    _ => problem.clone(),
                };
                say!("{step:>8} {floor:>9} {predicted:>12}  {kernel}")?;
            }
        }
        Ok(say!("")?)
    }
}

/// What is launched before each product of a step, where what it takes is not rounded yet: x is made so for a shared expert first.
fn quantisers(config: &LayerConfig, step: Option<Step>) -> Vec<Option<Quantise>> {
    let is_new = match config {
        LayerConfig::Moe(of) => of.shared_expert().is_none() || of.has_weighted_inputs(),
        _ => true,
    };
    match (&config.quantisers()[..], step) {
        ([x], None) => vec![Some(*x)],
        ([x, ..], Some(Step::Up)) => vec![is_new.then_some(*x)],
        ([_, h, ..], Some(Step::Down)) => vec![Some(*h)],
        ([x, _, h], Some(Step::Shared)) => vec![Some(*x), Some(*h)],
        _ => Vec::new(),
    }
}

/// The products of a step: up, down, and those of a shared expert are in this order.
fn of_step<T>(products: &[T], step: Step) -> &[T] {
    let range = match step {
        Step::Up => 0..1,
        Step::Down => 1..2,
        Step::Shared => 2..products.len(),
        Step::Route | Step::Combine | Step::Experts => 0..0,
    };
    products.get(range).unwrap_or_default()
}
