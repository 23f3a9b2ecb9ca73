//! What a layer computes: numbers that its weights, kernels and workspace follow from.

mod known;
mod linear;
mod manifest;
mod mlp;
mod moe;
mod segments;

use std::fmt;
use std::str::FromStr;

pub use known::{KNOWN, named};
pub use linear::LinearConfig;
pub use mlp::MlpConfig;
pub use moe::MoeConfig;
use segments::Segments;
use warpsmith::format::Format;
use warpsmith::internal::Raise;
use warpsmith::spec::{Activation, Combine, Problem, Quantise};
use warpsmith::{Error, Result};

/// Any layer.
///
/// # Spelling
/// That of the layer: `linear:…`, `mlp.…` or `moe.…`. [`named`] finds published ones.
///
/// ```
/// use warpsmith_layers::{LayerConfig, named};
/// let layer: LayerConfig = "mlp.silu:bf16:h4096:i14336".parse()?;
/// assert_eq!(Some(layer), named("llama-3.1-8b"));
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LayerConfig {
    /// One product.
    Linear(LinearConfig),
    /// Up and down.
    Mlp(MlpConfig),
    /// Experts.
    Moe(MoeConfig),
}

impl LayerConfig {
    /// Columns of x and of the result.
    #[must_use]
    pub fn columns(&self) -> [u32; 2] {
        match self {
            Self::Linear(of) => of.columns(),
            Self::Mlp(of) => [of.hidden_size(); 2],
            Self::Moe(of) => [of.expert().hidden_size(); 2],
        }
    }

    /// The format of x and of the result.
    pub fn token_format(&self) -> Format {
        match self {
            Self::Linear(of) => of.token_format(),
            Self::Mlp(of) => of.token_format(),
            Self::Moe(of) => of.expert().token_format(),
        }
    }

    /// With products of e4m3 values: see [`MlpConfig::e4m3`].
    pub fn e4m3(self) -> Self {
        match self {
            Self::Linear(of) => Self::Linear(of.e4m3()),
            Self::Mlp(of) => Self::Mlp(of.e4m3()),
            Self::Moe(of) => Self::Moe(of.e4m3()),
        }
    }

    /// With products of e4m3 values whose weights are expanded: see [`MlpConfig::expanded`].
    pub fn expanded(self) -> Self {
        match self {
            Self::Linear(of) => Self::Linear(of.expanded()),
            Self::Mlp(of) => Self::Mlp(of.expanded()),
            Self::Moe(of) => Self::Moe(of.expanded()),
        }
    }

    /// With products of NVFP4 values: see [`MlpConfig::nvfp4`].
    pub fn nvfp4(self) -> Self {
        match self {
            Self::Linear(of) => Self::Linear(of.nvfp4()),
            Self::Mlp(of) => Self::Mlp(of.nvfp4()),
            Self::Moe(of) => Self::Moe(of.nvfp4()),
        }
    }

    /// What rows become before products take them, e4m3 or nvfp4, if they do not stay what they are.
    #[must_use]
    pub fn rounded(&self) -> Option<Format> {
        match self {
            Self::Linear(of) => of.rounded(),
            Self::Mlp(of) => of.rounded(),
            Self::Moe(of) => of.expert().rounded(),
        }
    }

    /// What rounds rows before products take them: of a linear layer of x; else of x, of what is between up and down, and of
    /// that of a shared expert. None, where products are those of 16-bit values.
    #[must_use]
    pub fn quantisers(&self) -> Vec<Quantise> {
        match self {
            Self::Linear(of) => of.quantiser().into_iter().collect(),
            Self::Mlp(of) => of.quantisers().into_iter().flatten().collect(),
            Self::Moe(of) => of.quantisers(),
        }
    }

    /// What multiplies the factors of weights by that of the tokens, ahead of each product of NVFP4 values, in the order of
    /// [`LayerConfig::problems`]. None, where products are those of other values.
    ///
    /// # Errors
    /// Unsupported, if there is no such layer.
    pub fn scalers(&self) -> Result<Vec<Combine>> {
        Ok(self.problems(1)?.iter().filter_map(scaler).collect())
    }

    /// The problems of its kernels for up to `tokens` tokens: what a
    /// [`Manifest`](warpsmith::engine::Manifest) names. Routers, combiners and quantisers are besides.
    ///
    /// # Errors
    /// Unsupported, if there is no such layer.
    pub fn problems(&self, tokens: u32) -> Result<Vec<Problem>> {
        match self {
            Self::Linear(linear) => linear.problem(tokens).map(|problem| vec![problem]),
            Self::Mlp(mlp) => mlp.problems(tokens).map(Vec::from),
            Self::Moe(moe) => moe.problems(tokens),
        }
    }
}

impl fmt::Display for LayerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Linear(linear) => linear.fmt(f),
            Self::Mlp(mlp) => mlp.fmt(f),
            Self::Moe(moe) => moe.fmt(f),
        }
    }
}

impl FromStr for LayerConfig {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.split([':', '.']).next() {
            Some("linear") => text.parse().map(Self::Linear),
            Some("mlp") => text.parse().map(Self::Mlp),
            Some("moe") => text.parse().map(Self::Moe),
            _ => Err(Error::parse(format!("layer `{text}`: expected linear:…, mlp.… or moe.…"))),
        }
    }
}

impl From<LinearConfig> for LayerConfig {
    fn from(linear: LinearConfig) -> Self {
        Self::Linear(linear)
    }
}

impl From<MlpConfig> for LayerConfig {
    fn from(mlp: MlpConfig) -> Self {
        Self::Mlp(mlp)
    }
}

impl From<MoeConfig> for LayerConfig {
    fn from(moe: MoeConfig) -> Self {
        Self::Moe(moe)
    }
}

/// Whether an activation goes with a gate, where nothing else is said.
fn has_gate(activation: Activation) -> bool {
    Activation::GATED.iter().any(|gated| gated.word() == activation.word())
}

/// The first product, or two of them.
fn first(activation: Activation, is_gated: bool) -> Problem {
    if is_gated { Problem::dual_gemm(activation) } else { Problem::gemm().activation(activation) }
}

/// The columns of weights as kernels take them: [`Problem::K_STEP`] divides them. Of more than any problem has they stay what they
/// are, and are refused with it.
fn padded(columns: u32) -> u32 {
    columns.checked_next_multiple_of(Problem::K_STEP).unwrap_or(columns)
}

/// Refuses another format of activations.
fn check_format(format: Format) -> Result<()> {
    match format {
        Format::F16 | Format::Bf16 => Ok(()),
        _ => Err(Error::unsupported(format!("activations are f16 or bf16, not {format}"))),
    }
}

/// Elements that a block scale of weights is for. Refuses another format of weights.
fn check_weights(format: Format) -> Result<u32> {
    match format.scale_block() {
        Some(block) => Ok(block as u32),
        None => Err(Error::unsupported(format!("weights are nvfp4 or mxfp4, not {format}"))),
    }
}

/// How a spelling says the format of weights.
fn weights_word(format: Format) -> String {
    if format == Format::Nvfp4 { String::new() } else { format!(":{format}") }
}

/// The other way round.
fn weights_of(segments: &mut Segments<'_>) -> Format {
    if segments.is_next(Format::Mxfp4.word()) { Format::Mxfp4 } else { Format::Nvfp4 }
}

/// What rows become before products take them, and what their weights are then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Rounded {
    E4m3,
    /// E4m3, by weights that are values already.
    Expanded,
    Nvfp4,
}

impl Rounded {
    /// What a spelling may say, the longer of two that begin alike first.
    const ALL: [Self; 3] = [Self::Expanded, Self::E4m3, Self::Nvfp4];

    /// Of rows.
    fn format(self) -> Format {
        match self {
            Self::E4m3 | Self::Expanded => Format::E4m3,
            Self::Nvfp4 => Format::Nvfp4,
        }
    }

    /// How a spelling says it.
    fn words(self) -> &'static [&'static str] {
        match self {
            Self::E4m3 => &["e4m3"],
            Self::Expanded => &["e4m3", "expanded"],
            Self::Nvfp4 => &["nvfp4"],
        }
    }

    fn of(self, layer: LayerConfig) -> LayerConfig {
        match self {
            Self::E4m3 => layer.e4m3(),
            Self::Expanded => layer.expanded(),
            Self::Nvfp4 => layer.nvfp4(),
        }
    }
}

/// How a spelling says that.
fn rounded_word(rounded: Option<Rounded>) -> String {
    rounded.map_or(&[][..], Rounded::words).iter().map(|word| format!(":{word}")).collect()
}

/// The other way round.
fn rounded_of(segments: &mut Segments<'_>) -> Option<Rounded> {
    Rounded::ALL.into_iter().find(|rounded| segments.are_next(rounded.words()))
}

/// The format that products take tokens in. Refuses weights that are not multiplied with such.
fn multiplied(format: Format, weights: Format, rounded: Option<Rounded>) -> Result<Format> {
    match (rounded.map(Rounded::format), weights) {
        (None, _) => Ok(format),
        (Some(to), Format::Nvfp4) => Ok(to),
        (Some(to), other) => Err(Error::unsupported(format!("{to}: weights are nvfp4, not {other}"))),
    }
}

/// A problem whose weights are what layers of these products take.
fn weighed(problem: Problem, rounded: Option<Rounded>) -> Problem {
    if rounded == Some(Rounded::Expanded) { problem.expanded() } else { problem }
}

/// What rounds rows of so many elements; to NVFP4 with the factor of their own maximum.
fn quantiser(format: Format, k: u32, to: Rounded) -> Quantise {
    let quantise = Quantise::new().k(k).x(format);
    if to.format() == Format::E4m3 { quantise.e4m3() } else { quantise.own() }
}

/// What multiplies all factors of a problem's weights, in a row, by that of its tokens, if these have one of their own.
pub(crate) fn scaler(problem: &Problem) -> Option<Combine> {
    let factors = problem.operation().products() * problem.groups().unwrap_or(1);
    let row = Combine::new().hidden(factors.next_multiple_of(Combine::HIDDEN_STEP)).rows(Format::F32).out(Format::F32);
    (problem.a_format() == Format::Nvfp4).then(|| row.k(1).weighted())
}

/// Refuses what no layer has.
fn check(format: Format, weights: Format, hidden: u32, intermediate: u32) -> Result<()> {
    check_format(format)?;
    // Intermediate sizes are whole blocks.
    check_extent("hidden", hidden, Problem::K_STEP)?;
    check_extent("intermediate", intermediate, check_weights(weights)?)
}

fn check_extent(name: &str, extent: u32, step: u32) -> Result<()> {
    let most = Problem::EXTENT_MAX;
    if extent == 0 || !extent.is_multiple_of(step) || extent > most {
        return Err(Error::unsupported(format!("{name} = {extent}: must be a multiple of {step} up to {most}")));
    }
    Ok(())
}

/// Refuses more rows than a launch has.
fn check_rows(tokens: u32, each: u32) -> Result<u32> {
    let rows = u64::from(tokens) * u64::from(each);
    match u32::try_from(rows).ok().filter(|rows| (1..=Problem::M_MAX).contains(rows)) {
        Some(rows) => Ok(rows),
        None => Err(Error::unsupported(format!(
            "{tokens} tokens at most, {rows} rows: must be 1 to {} rows",
            Problem::M_MAX
        ))),
    }
}
