//! Up and down.

use std::fmt;
use std::str::FromStr;

use warpsmith::format::Format;
use warpsmith::spec::{Activation, Problem, Quantise};
use warpsmith::{Error, Result};

use super::segments::Segments;
use super::{
    Rounded, check, check_rows, first, has_gate, multiplied, padded, quantiser, rounded_of, rounded_word, weighed,
    weights_of, weights_word,
};

/// `y = h·Wdownᵀ`, `h = act(x·Wgateᵀ) ⊙ (x·Wupᵀ)`, or without a gate `h = act(x·Wupᵀ)`; gate and up `[I, H]`, down
/// `[H, I]`, all NVFP4, or said to be MXFP4. Gated is every activation that there is for a gate, unless it is said to be [ungated](MlpConfig::ungated).
///
/// # Spelling
/// `mlp.ACT:FORMAT:hH:iI[:bias_F][:ungated][:mxfp4][:e4m3[:expanded]|:nvfp4]`, such as `mlp.silu:bf16:h4096:i14336`. `ungated` is
/// not said of an activation that has no gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct MlpConfig {
    activation: Activation,
    is_gated: bool,
    format: Format,
    hidden: u32,
    intermediate: u32,
    bias: Option<Format>,
    weights: Format,
    rounded: Option<Rounded>,
}

impl MlpConfig {
    /// From H to I to H values, f16 unless said otherwise.
    pub fn new(activation: Activation, hidden: u32, intermediate: u32) -> Self {
        let is_gated = has_gate(activation);
        let (format, weights) = (Format::F16, Format::Nvfp4);
        Self { activation, is_gated, format, hidden, intermediate, bias: None, weights, rounded: None }
    }

    /// The format of x, h and y: f16 or bf16.
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Every product has a bias of this format.
    pub fn bias(mut self, format: Format) -> Self {
        self.bias = Some(format);
        self
    }

    /// The format of all weights: nvfp4 or mxfp4.
    pub fn weights(mut self, format: Format) -> Self {
        self.weights = format;
        self
    }

    /// Products are those of e4m3 values, at twice the rate of 16-bit ones: x and h are quantised to them, with a factor a row, and
    /// NVFP4 weights rounded. Less exact than products of 16-bit values, so that nothing but this chooses it; h and y stay what
    /// they are.
    pub fn e4m3(mut self) -> Self {
        self.rounded = Some(Rounded::E4m3);
        self
    }

    /// As [`MlpConfig::e4m3`], by weights that are those rounded values in memory: a byte each, 1.8 times what they take otherwise. For
    /// many rows, such as those of prompts; few take longer, as more is read.
    pub fn expanded(mut self) -> Self {
        self.rounded = Some(Rounded::Expanded);
        self
    }

    /// Products are those of NVFP4 values, as weights are (W4A4): x and h are quantised to them, each with a factor that follows from
    /// the largest of all tokens of a call, so that a token's bits depend on those beside it; of chunks each has its own. Less exact
    /// than products of 16-bit or of e4m3 values, so that nothing but this chooses it; h and y stay what they are.
    pub fn nvfp4(mut self) -> Self {
        self.rounded = Some(Rounded::Nvfp4);
        self
    }

    /// There is no gate.
    pub fn ungated(mut self) -> Self {
        self.is_gated = false;
        self
    }

    /// Of the gate, or of the only first product.
    #[must_use]
    pub fn activation(&self) -> Activation {
        self.activation
    }

    /// Whether there is a gate.
    #[must_use]
    pub fn is_gated(&self) -> bool {
        self.is_gated
    }

    /// The format of x, h and y.
    pub fn token_format(&self) -> Format {
        self.format
    }

    /// The format of the weights.
    pub fn weight_format(&self) -> Format {
        self.weights
    }

    /// What x and h become before products take them, e4m3 or nvfp4, if they do not stay what they are.
    #[must_use]
    pub fn rounded(&self) -> Option<Format> {
        self.rounded.map(Rounded::format)
    }

    /// Whether weights are [expanded](MlpConfig::expanded).
    #[must_use]
    pub fn is_expanded(&self) -> bool {
        self.rounded == Some(Rounded::Expanded)
    }

    /// What makes x and h so.
    #[must_use]
    pub fn quantisers(&self) -> Option<[Quantise; 2]> {
        self.rounded.map(|to| [self.hidden, self.padded_size()].map(|k| quantiser(self.format, k, to)))
    }

    /// The format of the biases, if there are any.
    #[must_use]
    pub fn bias_format(&self) -> Option<Format> {
        self.bias
    }

    /// H.
    #[must_use]
    pub fn hidden_size(&self) -> u32 {
        self.hidden
    }

    /// I, as the weights have it.
    #[must_use]
    pub fn intermediate_size(&self) -> u32 {
        self.intermediate
    }

    /// I, as kernels have it: a multiple of 64.
    #[must_use]
    pub fn padded_size(&self) -> u32 {
        padded(self.intermediate)
    }

    /// Up and down, for up to `tokens` tokens.
    ///
    /// # Errors
    /// Unsupported, with the value and its limit.
    pub fn problems(&self, tokens: u32) -> Result<[Problem; 2]> {
        let problems = || {
            let problems = self.of_rows(check_rows(tokens, 1)?)?;
            problems.iter().try_for_each(Problem::check).map(|()| problems)
        };
        problems().map_err(|error: Error| error.context(self.to_string()))
    }

    /// The same for so many rows.
    pub(super) fn of_rows(&self, rows: u32) -> Result<[Problem; 2]> {
        let Self { activation, is_gated, format, hidden, intermediate, bias, weights, rounded } = *self;
        check(format, weights, hidden, intermediate)?;
        let a = multiplied(format, weights, rounded)?;
        let finished = |problem: Problem| {
            let problem = weighed(problem.a(a).b(weights).c(format).m_up_to(rows), rounded);
            bias.map_or(problem, |bias| problem.bias(bias))
        };
        let up = first(activation, is_gated).n(padded(intermediate)).k(hidden);
        let down = Problem::gemm().n(hidden).k(padded(intermediate));
        Ok([finished(up), finished(down)])
    }

    /// One of another size, NVFP4, without biases.
    pub(super) fn of_size(mut self, intermediate: u32) -> Self {
        (self.intermediate, self.bias, self.weights) = (intermediate, None, Format::Nvfp4);
        self
    }

    /// What a spelling begins with, behind its word.
    pub(super) fn sizes(&self) -> String {
        let Self { activation, format, hidden, intermediate, .. } = self;
        format!("{activation}:{format}:h{hidden}:i{intermediate}")
    }

    /// What it has besides, as a spelling says it.
    pub(super) fn words(&self) -> String {
        let bias = self.bias.map_or_else(String::new, |format| format!(":bias_{format}"));
        let ungated = if self.is_gated || !has_gate(self.activation) { "" } else { ":ungated" };
        bias + ungated + &weights_word(self.weights) + &rounded_word(self.rounded)
    }

    /// With what a spelling says of it besides.
    pub(super) fn with_words(mut self, segments: &mut Segments<'_>) -> Result<Self> {
        self.bias = segments.behind("bias_")?;
        self.is_gated = self.is_gated && !segments.is_next("ungated");
        self.weights = weights_of(segments);
        self.rounded = rounded_of(segments);
        Ok(self)
    }
}

impl fmt::Display for MlpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mlp.{}{}", self.sizes(), self.words())
    }
}

impl FromStr for MlpConfig {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parse = || {
            let mut segments =
                Segments::of(text, "mlp.ACT:FORMAT:hH:iI[:bias_F][:ungated][:mxfp4][:e4m3[:expanded]|:nvfp4]");
            let activation: Activation = segments.head("mlp.")?.parse()?;
            let format = segments.next().parse()?;
            let mlp = Self::new(activation, segments.extent("h")?, segments.extent("i")?).format(format);
            let mlp = mlp.with_words(&mut segments)?;
            segments.end().map(|()| mlp)
        };
        parse().map_err(|error: Error| error.context(format!("layer `{text}`")))
    }
}
