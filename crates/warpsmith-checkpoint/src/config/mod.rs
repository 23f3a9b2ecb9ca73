//! What `config.json` says of a model.

mod architecture;
mod experts;
mod fields;
mod quantisation;

use std::fmt;

use serde_json::{Map, Value};
use warpsmith::format::Format;
use warpsmith::internal::Raise;
use warpsmith::spec::Activation;
use warpsmith::{Error, Result};

pub use architecture::Architecture;
pub use experts::Experts;
use fields::Fields;
pub(crate) use quantisation::{Quantisation, is_within};

/// A model, as far as its layers go.
#[derive(Clone, Debug)]
pub struct Config {
    architecture: Architecture,
    hidden: usize,
    intermediate: Option<usize>,
    layers: Option<usize>,
    activation: Activation,
    format: Option<Format>,
    heads: Option<Heads>,
    experts: Option<Experts>,
}

/// Rows of fused projections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads {
    pub(crate) q: usize,
    pub(crate) kv: usize,
    pub(crate) size: usize,
}

impl Config {
    /// From the object that `config.json` is.
    pub(crate) fn parse(all: &Map<String, Value>) -> Result<Self> {
        let architecture = Architecture::of(all)?;
        // Of a model that sees, what reads.
        let text = match all.get("text_config") {
            Some(Value::Object(text)) => text,
            _ => all,
        };
        let fields = Fields::of(text);
        let hidden = fields.number("hidden_size")?;
        let heads = || -> Result<Option<Heads>> {
            let Some(q) = fields.find("num_attention_heads")? else { return Ok(None) };
            let kv = fields.find("num_key_value_heads")?.unwrap_or(q);
            let size = fields.find("head_dim")?.unwrap_or(hidden / q);
            Ok(Some(Heads { q, kv, size }))
        };
        Ok(Self {
            architecture,
            hidden,
            intermediate: architecture.intermediate(&fields)?,
            layers: fields.find("num_hidden_layers")?,
            activation: architecture.activation(&fields)?,
            format: format(&fields)?.map_or_else(|| format(&Fields::of(all)), |format| Ok(Some(format)))?,
            heads: heads()?,
            experts: architecture.experts(&fields)?,
        })
    }

    /// Whose names and rules hold.
    pub fn architecture(&self) -> Architecture {
        self.architecture
    }

    /// H.
    #[must_use]
    pub fn hidden_size(&self) -> usize {
        self.hidden
    }

    /// I of layers without experts, if it is said.
    #[must_use]
    pub fn intermediate_size(&self) -> Option<usize> {
        self.intermediate
    }

    /// Layers, if it is said.
    #[must_use]
    pub fn layer_count(&self) -> Option<usize> {
        self.layers
    }

    /// Of MLPs and experts.
    #[must_use]
    pub fn activation(&self) -> Activation {
        self.activation
    }

    /// What the model was made in, if it is said: f16, bf16 or f32.
    #[must_use]
    pub fn token_format(&self) -> Option<Format> {
        self.format
    }

    /// Layers with experts, if there are any.
    #[must_use]
    pub fn experts(&self) -> Option<&Experts> {
        self.experts.as_ref()
    }

    pub(crate) fn heads(&self) -> Option<Heads> {
        self.heads
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { architecture, hidden, activation, .. } = self;
        write!(f, "{architecture}, {hidden} columns, {activation}")?;
        self.experts.as_ref().map_or(Ok(()), |experts| write!(f, ", {}", experts.route()))
    }
}

fn format(fields: &Fields<'_>) -> Result<Option<Format>> {
    let word = fields.word("dtype")?.map_or_else(|| fields.word("torch_dtype"), |word| Ok(Some(word)))?;
    word.map(|word| match word {
        "float16" => Ok(Format::F16),
        "bfloat16" => Ok(Format::Bf16),
        "float32" => Ok(Format::F32),
        other => Err(Error::unsupported(format!("dtype `{other}`: expected float16, bfloat16 or float32"))),
    })
    .transpose()
}
