//! Layers of published models.

use warpsmith::format::Format;

use super::{LayerConfig, ROUNDED};

/// Names and spellings.
pub const KNOWN: &[(&str, &str)] = &[
    ("qwen3-30b", "moe.silu:bf16:h2048:i768:softmax:e128:k8:renormalised"),
    ("qwen3-235b", "moe.silu:bf16:h4096:i1536:softmax:e128:k8:renormalised"),
    ("mixtral-8x7b", "moe.silu:bf16:h4096:i14336:softmax:e8:k2:renormalised"),
    // A rank's part of 384 experts.
    ("kimi-k2-48", "moe.silu:bf16:h7168:i2048:sigmoid_bias:e48:k8:renormalised"),
    ("gpt-oss-120b", "moe.swiglu_oai:bf16:h2880:i2880:softmax:e128:k4:renormalised:bias_bf16"),
    ("llama-3.1-8b", "mlp.silu:bf16:h4096:i14336"),
];

/// The layer of this name, behind which `:e4m3` or `:nvfp4` may stand: the same with products of
/// [e4m3](LayerConfig::e4m3) or [NVFP4](LayerConfig::nvfp4) values.
#[must_use]
pub fn named(name: &str) -> Option<LayerConfig> {
    let (name, word) = name.split_once(':').map_or((name, None), |(name, word)| (name, Some(word)));
    let (_, spelling) = KNOWN.iter().find(|(known, _)| *known == name)?;
    let layer: LayerConfig = spelling.parse().ok()?;
    let Some(word) = word else { return Some(layer) };
    match ROUNDED.into_iter().find(|format| format.word() == word)? {
        Format::E4m3 => Some(layer.e4m3()),
        _ => Some(layer.nvfp4()),
    }
}
