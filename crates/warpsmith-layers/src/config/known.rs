//! Layers of published models.

use super::segments::Segments;
use super::{LayerConfig, rounded_of};

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

/// The layer of this name, behind which `:e4m3`, `:e4m3:expanded` or `:nvfp4` may stand: the same with products of
/// [e4m3](LayerConfig::e4m3) values, of those by [expanded](LayerConfig::expanded) weights, or of [NVFP4](LayerConfig::nvfp4)
/// values; and behind that, of experts, `:skewS`: see [`MoeConfig::skew`](super::MoeConfig::skew).
#[must_use]
pub fn named(name: &str) -> Option<LayerConfig> {
    let mut segments = Segments::of(name, "NAME[:e4m3[:expanded]|:nvfp4][:skewS]");
    let name = segments.next();
    let (_, spelling) = KNOWN.iter().find(|(known, _)| *known == name)?;
    let mut layer: LayerConfig = spelling.parse().ok()?;
    if let Some(rounded) = rounded_of(&mut segments) {
        layer = rounded.of(layer);
    }
    if let LayerConfig::Moe(moe) = layer
        && let Some(skew) = segments.number("skew").ok()?
    {
        layer = LayerConfig::Moe(moe.skew(skew));
    }
    segments.end().is_ok().then_some(layer)
}
