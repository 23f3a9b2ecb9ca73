//! One product.

use std::fmt;
use std::str::FromStr;

use warpsmith::format::Format;
use warpsmith::spec::{Problem, Quantise};
use warpsmith::{Error, Result};

use super::segments::Segments;
use super::{
    Rounded, check_extent, check_format, check_rows, check_weights, multiplied, padded, quantiser, rounded_of,
    rounded_word, weighed, weights_of, weights_word,
};

/// `y = α·x·Wᵀ`, W `[N, K]` NVFP4, or said to be MXFP4, with a factor for each row of W and a bias, as far as there are such. K is a
/// multiple of 16, of MXFP4 32; where it is none of 64, a layer multiplies with zeros behind it.
///
/// # Spelling
/// `linear:FORMAT:nN:kK[:row_scale][:bias_F][:mxfp4][:e4m3[:expanded]|:nvfp4]`, such as `linear:bf16:n6144:k4096`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct LinearConfig {
    format: Format,
    n: u32,
    k: u32,
    has_row_scale: bool,
    bias: Option<Format>,
    weights: Format,
    rounded: Option<Rounded>,
}

impl LinearConfig {
    /// From K to N values, f16 unless said otherwise.
    pub fn new(n: u32, k: u32) -> Self {
        Self { format: Format::F16, n, k, has_row_scale: false, bias: None, weights: Format::Nvfp4, rounded: None }
    }

    /// The format of x and y: f16 or bf16.
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Rows of W have factors.
    pub fn row_scale(mut self) -> Self {
        self.has_row_scale = true;
        self
    }

    /// There is a bias of this format.
    pub fn bias(mut self, format: Format) -> Self {
        self.bias = Some(format);
        self
    }

    /// The format of W: nvfp4 or mxfp4.
    pub fn weights(mut self, format: Format) -> Self {
        self.weights = format;
        self
    }

    /// The product is one of e4m3 values: see [`MlpConfig::e4m3`](super::MlpConfig::e4m3).
    pub fn e4m3(mut self) -> Self {
        self.rounded = Some(Rounded::E4m3);
        self
    }

    /// The product is one of e4m3 values, by expanded weights: see [`MlpConfig::expanded`](super::MlpConfig::expanded).
    pub fn expanded(mut self) -> Self {
        self.rounded = Some(Rounded::Expanded);
        self
    }

    /// The product is one of NVFP4 values: see [`MlpConfig::nvfp4`](super::MlpConfig::nvfp4).
    pub fn nvfp4(mut self) -> Self {
        self.rounded = Some(Rounded::Nvfp4);
        self
    }

    /// The format of W.
    pub fn weight_format(&self) -> Format {
        self.weights
    }

    /// Columns of x and y.
    #[must_use]
    pub fn columns(&self) -> [u32; 2] {
        [self.k, self.n]
    }

    /// K, as kernels have it: a multiple of 64.
    #[must_use]
    pub fn padded_depth(&self) -> u32 {
        padded(self.k)
    }

    /// The format of x and y.
    pub fn token_format(&self) -> Format {
        self.format
    }

    /// The format of the bias, if there is one.
    #[must_use]
    pub fn bias_format(&self) -> Option<Format> {
        self.bias
    }

    /// Whether rows of W have factors.
    #[must_use]
    pub fn has_row_scale(&self) -> bool {
        self.has_row_scale
    }

    /// What x becomes before the product takes it, e4m3 or nvfp4, if it does not stay what it is.
    #[must_use]
    pub fn rounded(&self) -> Option<Format> {
        self.rounded.map(Rounded::format)
    }

    /// What makes x so.
    #[must_use]
    pub fn quantiser(&self) -> Option<Quantise> {
        self.rounded.map(|to| quantiser(self.format, padded(self.k), to))
    }

    /// For up to `tokens` tokens.
    ///
    /// # Errors
    /// Unsupported, with the value and its limit.
    pub fn problem(&self, tokens: u32) -> Result<Problem> {
        let Self { format, n, k, has_row_scale, bias, weights, rounded } = *self;
        let problem = || {
            check_format(format)?;
            check_extent("K", k, check_weights(weights)?)?;
            let a = multiplied(format, weights, rounded)?;
            let problem = Problem::gemm().n(n).k(padded(k)).a(a).b(weights).c(format).m_up_to(check_rows(tokens, 1)?);
            let problem = weighed(problem, rounded);
            let problem = if has_row_scale { problem.row_scale() } else { problem };
            let problem = bias.map_or(problem, |bias| problem.bias(bias));
            problem.check().map(|()| problem)
        };
        problem().map_err(|error: Error| error.context(self.to_string()))
    }
}

impl fmt::Display for LinearConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "linear:{}:n{}:k{}", self.format, self.n, self.k)?;
        if self.has_row_scale {
            f.write_str(":row_scale")?;
        }
        self.bias.map_or(Ok(()), |format| write!(f, ":bias_{format}"))?;
        f.write_str(&(weights_word(self.weights) + &rounded_word(self.rounded)))
    }
}

impl FromStr for LinearConfig {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parse = || {
            let mut segments =
                Segments::of(text, "linear:FORMAT:nN:kK[:row_scale][:bias_F][:mxfp4][:e4m3[:expanded]|:nvfp4]");
            if let rest @ 1.. = segments.head("linear")?.len() {
                return Err(segments.wrong(&text[..rest]));
            }
            let format = segments.next().parse()?;
            let linear = Self {
                format,
                n: segments.extent("n")?,
                k: segments.extent("k")?,
                has_row_scale: segments.is_next("row_scale"),
                bias: segments.behind("bias_")?,
                weights: weights_of(&mut segments),
                rounded: rounded_of(&mut segments),
            };
            segments.end().map(|()| linear)
        };
        parse().map_err(|error: Error| error.context(format!("layer `{text}`")))
    }
}
