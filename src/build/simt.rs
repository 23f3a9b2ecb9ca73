//! The source of kernels without matrix instructions.

use serde::Serialize;

use super::{Header, Source, render};
use crate::error::Result;
use crate::format::{Coding, Format, Words};
use crate::simt::{Combine, Experts, Preparation, Quantise, QuantiseWeights, Route, Simt};

impl Simt {
    /// Symbols of the kernels, in the order in which they are loaded.
    pub(crate) fn entries(&self) -> Vec<String> {
        let symbol = self.symbol();
        match self {
            Self::Prepare(preparation) if preparation.has_row_factors() => vec![symbol.clone(), factors_of(&symbol)],
            Self::Prepare(_) | Self::Combine(_) | Self::Experts(_) => vec![symbol],
            Self::Quantise(quantise) if quantise.is_own() => vec![symbol.clone(), maximum_of(&symbol)],
            Self::Quantise(_) => vec![symbol],
            Self::QuantiseWeights(_) => vec![symbol.clone(), largest_of(&symbol)],
            Self::Route(_) => ["few", "count", "place"].map(|part| format!("{symbol}_{part}")).to_vec(),
        }
    }

    /// Its CUDA text.
    ///
    /// # Errors
    /// Unsupported, if no kernel can be made of it; internal, if the template names what there is no value for.
    pub fn render(&self) -> Result<Source> {
        self.check()?;
        let symbol = self.symbol();
        let (text, headers) = match self {
            Self::Prepare(preparation) => prepare_text(preparation)?,
            Self::Route(route) => render::fill(ROUTE, &RouteNames::new(route, &symbol))?,
            Self::Combine(combine) => render::fill(COMBINE, &CombineNames::new(combine, &symbol))?,
            Self::Experts(experts) => render::fill(EXPERTS, &ExpertsNames::new(experts, &symbol)?)?,
            Self::Quantise(quantise) => quantise_text(quantise, &symbol)?,
            Self::QuantiseWeights(weights) => {
                render::fill(QUANTISE_WEIGHTS, &QuantiseWeightsNames::new(weights, &symbol))?
            }
        };
        Ok(Source::new(format!("{symbol}.cu"), text, headers, self.entries()))
    }
}

const PREPARE: &str = "common/prepare.cu";
const PREPARE_E4M3: &str = "common/prepare_e4m3.cu";
const ROUTE: &str = "simt/route.cu";
const COMBINE: &str = "simt/combine.cu";
const EXPERTS: &str = "simt/experts.cu";
const QUANTISE: &str = "simt/quantise.cu";
const MAXIMUM: &str = "simt/maximum.cu";
const QUANTISE_E4M3: &str = "simt/quantise_e4m3.cu";
const QUANTISE_WEIGHTS: &str = "simt/quantise_weights.cu";

/// The kernel, and before it that of the maximum where it needs one.
fn quantise_text(quantise: &Quantise, symbol: &str) -> Result<(String, &'static [Header])> {
    if quantise.to_format() == Format::E4m3 {
        return render::fill(QUANTISE_E4M3, &QuantiseE4m3Names::new(quantise, symbol));
    }
    let (text, headers) = render::fill(QUANTISE, &QuantiseNames::new(quantise, symbol))?;
    if !quantise.is_own() {
        return Ok((text, headers));
    }
    let names = MaximumNames { symbol: maximum_of(symbol), x: quantise.x_format().word() };
    let (maximum, _) = render::fill(MAXIMUM, &names)?;
    Ok((maximum + "\n" + &text, headers))
}

fn maximum_of(symbol: &str) -> String {
    format!("{symbol}_maximum")
}

fn largest_of(symbol: &str) -> String {
    format!("{symbol}_largest")
}

/// The kernel, by what becomes of the weights.
fn prepare_text(preparation: &Preparation) -> Result<(String, &'static [Header])> {
    match preparation.coding() {
        Coding::Halves(words) => render::fill(PREPARE, &PrepareNames::new(preparation, words)),
        Coding::E4m3 | Coding::Expanded => render::fill(PREPARE_E4M3, &PrepareE4m3Names::new(preparation)),
    }
}

fn factors_of(symbol: &str) -> String {
    format!("{symbol}_factors")
}

/// What the template of the preparing kernels may name whose weights become e4m3.
#[derive(Serialize)]
struct PrepareE4m3Names {
    symbol: String,
    factors: String,
    products: u32,
    block_bytes: usize,
    scales: &'static str,
    store: &'static str,
}

impl PrepareE4m3Names {
    fn new(preparation: &Preparation) -> Self {
        let symbol = preparation.symbol();
        Self {
            factors: factors_of(&symbol),
            symbol,
            products: preparation.products(),
            block_bytes: preparation.block_bytes(),
            scales: preparation.scales_word(),
            store: if preparation.coding() == Coding::Expanded { "expanded" } else { "e4m3" },
        }
    }
}

/// What the template of the other preparing kernels may name.
#[derive(Serialize)]
struct PrepareNames {
    symbol: String,
    products: u32,
    block_bytes: usize,
    encoder: String,
    compute: &'static str,
    weights: &'static str,
    scales: &'static str,
}

impl PrepareNames {
    fn new(preparation: &Preparation, words: Words) -> Self {
        Self {
            symbol: preparation.symbol(),
            products: preparation.products(),
            block_bytes: preparation.block_bytes(),
            encoder: list(words.encoder()),
            compute: preparation.compute().word(),
            weights: preparation.weights().word(),
            scales: preparation.scales_word(),
        }
    }
}

/// The words as elements of a CUDA array, eight a line.
fn list(words: &[u32; 32]) -> String {
    let line = |words: &[u32]| words.iter().map(|word| format!("{word:#010x}")).collect::<Vec<_>>().join(", ");
    words.chunks(8).map(line).collect::<Vec<_>>().join(",\n      ")
}

/// What the template of the routers may name.
#[derive(Serialize)]
struct RouteNames<'s> {
    symbol: &'s str,
    experts: u32,
    first_local: u32,
    local_experts: u32,
    k: u32,
    groups: u32,
    kept_groups: u32,
    cluster: u32,
    renormalise: bool,
    logits: &'static str,
    score: &'static str,
}

impl<'s> RouteNames<'s> {
    fn new(route: &Route, symbol: &'s str) -> Self {
        let (groups, kept_groups) = route.group_counts();
        let local = route.local_experts();
        Self {
            symbol,
            experts: route.expert_count(),
            first_local: local.start,
            local_experts: local.end - local.start,
            k: route.experts_per_token(),
            groups,
            kept_groups,
            cluster: route.cluster(),
            renormalise: route.is_renormalised(),
            logits: route.logits_format().map_or("none", |format| format.word()),
            score: route.scoring().word(),
        }
    }
}

/// What the template of the experts may name.
#[derive(Serialize)]
struct ExpertsNames<'s> {
    symbol: &'s str,
    format: &'static str,
    compute: &'static str,
    decode: &'static str,
    products: &'static str,
    decode_bytes: u32,
    activation: &'static str,
    limit: u32,
    weights: String,
    hidden: u32,
    intermediate: u32,
    experts: u32,
    first_local: u32,
    local_experts: u32,
    k: u32,
    groups: u32,
    kept_groups: u32,
    renormalise: bool,
    given: bool,
    logits: &'static str,
    score: &'static str,
    shared: bool,
    residual: bool,
    tokens: u32,
    blocks: u32,
    warps: u32,
    step_blocks: u32,
    up_warps: u32,
    ahead: u32,
    batch: u32,
    shared_bytes: u32,
}

impl<'s> ExpertsNames<'s> {
    fn new(experts: &Experts, symbol: &'s str) -> Result<Self> {
        let route = RouteNames::new(experts.route(), symbol);
        let (tile, format, activation) = (experts.tile()?, experts.token_format().word(), experts.activation());
        let e4m3 = experts.is_e4m3().then(|| Format::E4m3.word());
        Ok(Self {
            symbol,
            format,
            // What holds e4m3 values exactly.
            compute: if e4m3.is_some() { Format::F16.word() } else { format },
            decode: e4m3.unwrap_or(format),
            products: e4m3.unwrap_or("half"),
            decode_bytes: experts.decode_bytes(),
            activation: activation.word(),
            limit: activation.limit().unwrap_or(0),
            weights: match (e4m3, experts.weights_format()) {
                (Some(e4m3), _) => e4m3.to_owned(),
                (None, Format::Mxfp4) => format!("mxfp4/{format}"),
                (None, weights) => weights.word().to_owned(),
            },
            hidden: experts.hidden_size(),
            intermediate: experts.intermediate_size(),
            experts: route.experts,
            first_local: route.first_local,
            local_experts: route.local_experts,
            k: route.k,
            groups: route.groups,
            kept_groups: route.kept_groups,
            renormalise: route.renormalise,
            given: experts.route().logits_format().is_none(),
            logits: route.logits,
            score: route.score,
            shared: experts.has_shared(),
            residual: experts.has_residual(),
            tokens: tile.tokens,
            blocks: Experts::BLOCKS_MAX,
            warps: Experts::WARPS,
            step_blocks: tile.step_blocks,
            up_warps: tile.up_warps,
            ahead: Experts::AHEAD / tile.step_blocks,
            batch: tile.batch,
            shared_bytes: tile.shared_bytes,
        })
    }
}

/// What the template of the combiners may name.
#[derive(Serialize)]
struct CombineNames<'s> {
    symbol: &'s str,
    rows: &'static str,
    out: &'static str,
    hidden: u32,
    k: u32,
    weighted: bool,
    placed: bool,
    shared: bool,
    shared_gate: &'static str,
    residual: bool,
}

impl<'s> CombineNames<'s> {
    fn new(combine: &Combine, symbol: &'s str) -> Self {
        Self {
            symbol,
            rows: combine.rows_format().word(),
            out: combine.out_format().word(),
            hidden: combine.hidden_size(),
            k: combine.rows_per_token(),
            weighted: combine.is_weighted(),
            placed: combine.is_placed(),
            shared: combine.has_shared(),
            shared_gate: if combine.has_shared_gate() { "sigmoid" } else { "none" },
            residual: combine.has_residual(),
        }
    }
}

/// What the template of the quantisers may name.
#[derive(Serialize)]
struct QuantiseNames<'s> {
    symbol: &'s str,
    x: &'static str,
    k: u32,
    scales: &'static str,
    factor: &'static str,
}

impl<'s> QuantiseNames<'s> {
    fn new(quantise: &Quantise, symbol: &'s str) -> Self {
        Self {
            symbol,
            x: quantise.x_format().word(),
            k: quantise.row_length(),
            scales: quantise.scale_layout().word(),
            factor: if quantise.is_own() { "own" } else { "given" },
        }
    }
}

/// What the template of those to e4m3 may name.
#[derive(Serialize)]
struct QuantiseE4m3Names<'s> {
    symbol: &'s str,
    x: &'static str,
    k: u32,
    row_threads: u32,
    span: &'static str,
}

impl<'s> QuantiseE4m3Names<'s> {
    fn new(quantise: &Quantise, symbol: &'s str) -> Self {
        Self {
            symbol,
            x: quantise.x_format().word(),
            k: quantise.row_length(),
            row_threads: quantise.row_threads(),
            span: if quantise.has_k_factors() { "k" } else { "row" },
        }
    }
}

/// What the template of their maxima may name.
#[derive(Serialize)]
struct MaximumNames {
    symbol: String,
    x: &'static str,
}

/// What the template of those of weights may name.
#[derive(Serialize)]
struct QuantiseWeightsNames<'s> {
    symbol: &'s str,
    largest: String,
    x: &'static str,
    rule: &'static str,
    stored: &'static str,
}

impl<'s> QuantiseWeightsNames<'s> {
    fn new(weights: &QuantiseWeights, symbol: &'s str) -> Self {
        Self {
            symbol,
            largest: largest_of(symbol),
            x: weights.x_format().word(),
            rule: weights.rule(),
            stored: weights.stored(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simt::Scoring;
    use crate::spec::Activation;

    /// That every name has a value is checked by rendering.
    #[test]
    fn every_value_is_named_by_its_template() {
        let named = |template: &str, given: serde_json::Value| {
            for name in given.as_object().unwrap().keys() {
                assert!(template.contains(&format!("<{{ {name} }}>")), "{name}");
            }
        };
        for preparation in Preparation::all() {
            let (text, given) = match preparation.coding() {
                Coding::Halves(words) => (
                    include_str!("../../templates/common/prepare.cu"),
                    serde_json::to_value(PrepareNames::new(&preparation, words)),
                ),
                Coding::E4m3 | Coding::Expanded => (
                    include_str!("../../templates/common/prepare_e4m3.cu"),
                    serde_json::to_value(PrepareE4m3Names::new(&preparation)),
                ),
            };
            named(text, given.unwrap());
        }
        let route = Route::new(Scoring::Softmax).experts(8).k(2);
        let given = serde_json::to_value(RouteNames::new(&route, "route")).unwrap();
        named(include_str!("../../templates/simt/route.cu"), given);
        let given = serde_json::to_value(CombineNames::new(&Combine::new(), "combine")).unwrap();
        named(include_str!("../../templates/simt/combine.cu"), given);
        let experts = Experts::new(Activation::Silu, route).sizes(64, 64);
        let given = serde_json::to_value(ExpertsNames::new(&experts, "experts").unwrap()).unwrap();
        named(include_str!("../../templates/simt/experts.cu"), given);
        let given = serde_json::to_value(QuantiseNames::new(&Quantise::new(), "quantise")).unwrap();
        named(include_str!("../../templates/simt/quantise.cu"), given);
        let given = serde_json::to_value(QuantiseE4m3Names::new(&Quantise::new().e4m3(), "e4m3")).unwrap();
        named(include_str!("../../templates/simt/quantise_e4m3.cu"), given);
        let of = QuantiseWeights::new(Format::Bf16);
        let given = serde_json::to_value(QuantiseWeightsNames::new(&of, "weights")).unwrap();
        named(include_str!("../../templates/simt/quantise_weights.cu"), given);
        let given = serde_json::to_value(MaximumNames { symbol: "maximum".to_owned(), x: "f16" }).unwrap();
        named(include_str!("../../templates/simt/maximum.cu"), given);
    }
}
