//! Models by the names that their configurations have.

use std::fmt;

use serde_json::{Map, Value};
use warpsmith::internal::Raise;
use warpsmith::spec::Activation;
use warpsmith::{Error, Result};

use super::fields::Fields;

/// Whose names of tensors and whose rules hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Architecture {
    /// Llama to 3.3, and what is built like it.
    Llama,
    /// Mistral.
    Mistral,
    /// Qwen2.
    Qwen2,
    /// Qwen3.
    Qwen3,
    /// Phi-3, whose projections are fused.
    Phi3,
    /// Qwen2-MoE.
    Qwen2Moe,
    /// Qwen3-MoE.
    Qwen3Moe,
    /// Qwen3-Next.
    Qwen3Next,
    /// Mixtral.
    Mixtral,
    /// DeepSeek-V2.
    DeepseekV2,
    /// DeepSeek-V3, R1, Kimi-K2.
    DeepseekV3,
    /// GLM-4.5.
    Glm4Moe,
    /// gpt-oss.
    GptOss,
    /// Llama-4.
    Llama4,
    /// Nemotron-4, relu² without gates.
    Nemotron,
    /// Nemotron-H, of which some layers are MLPs or experts.
    NemotronH,
}

/// Names as `architectures` has them, without `ForCausalLM` or `ForConditionalGeneration`, and as `model_type` has them.
const NAMES: &[(Architecture, &[&str])] = &[
    (Architecture::Llama, &["Llama", "llama"]),
    (Architecture::Mistral, &["Mistral", "mistral", "Mistral3", "mistral3"]),
    (Architecture::Qwen2, &["Qwen2", "qwen2"]),
    (Architecture::Qwen3, &["Qwen3", "qwen3"]),
    (Architecture::Phi3, &["Phi3", "phi3"]),
    (Architecture::Qwen2Moe, &["Qwen2Moe", "qwen2_moe"]),
    (Architecture::Qwen3Moe, &["Qwen3Moe", "qwen3_moe"]),
    (Architecture::Qwen3Next, &["Qwen3Next", "qwen3_next"]),
    (Architecture::Mixtral, &["Mixtral", "mixtral"]),
    (Architecture::DeepseekV2, &["DeepseekV2", "deepseek_v2"]),
    (Architecture::DeepseekV3, &["DeepseekV3", "deepseek_v3", "KimiK2", "kimi_k2"]),
    (Architecture::Glm4Moe, &["Glm4Moe", "glm4_moe"]),
    (Architecture::GptOss, &["GptOss", "gpt_oss"]),
    (Architecture::Llama4, &["Llama4", "llama4", "llama4_text"]),
    (Architecture::Nemotron, &["Nemotron", "nemotron"]),
    (Architecture::NemotronH, &["NemotronH", "nemotron_h"]),
];

const ENDS: [&str; 2] = ["ForCausalLM", "ForConditionalGeneration"];

impl Architecture {
    /// What a configuration says it is.
    pub(crate) fn of(all: &Map<String, Value>) -> Result<Self> {
        let listed = all.get("architectures").and_then(|names| names.get(0)).and_then(Value::as_str);
        let listed = listed.map(|name| ENDS.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name));
        let typed = all.get("model_type").and_then(Value::as_str);
        let known = |name: &str| NAMES.iter().find(|(_, names)| names.contains(&name)).map(|(of, _)| *of);
        [listed, typed].into_iter().flatten().find_map(known).ok_or_else(|| {
            let found: Vec<_> = [listed, typed].into_iter().flatten().collect();
            let all: Vec<_> = NAMES.iter().map(|(of, _)| of.to_string()).collect();
            let found = if found.is_empty() { "nothing".to_owned() } else { found.join(", ") };
            Error::unsupported(format!(
                "config.json: `architectures` and `model_type` say {found}; known are {}",
                all.join(", ")
            ))
        })
    }

    /// Whether MLPs have a gate.
    #[must_use]
    pub fn is_gated(self) -> bool {
        !matches!(self, Self::Nemotron | Self::NemotronH)
    }

    /// Of MLPs and experts.
    pub(super) fn activation(self, fields: &Fields<'_>) -> Result<Activation> {
        if self == Self::GptOss {
            return match fields.real("swiglu_limit")? {
                None | Some(7.0) => Ok(Activation::SwigluOai),
                Some(limit) => {
                    Err(Error::unsupported(format!("config.json: `swiglu_limit` is {limit}, kernels have 7")))
                }
            };
        }
        let (name, of_others) = match self {
            Self::NemotronH => ("mlp_hidden_act", "relu2"),
            Self::Nemotron => ("hidden_act", "relu2"),
            _ => ("hidden_act", "silu"),
        };
        match fields.word(name)?.unwrap_or(of_others) {
            "silu" | "swish" => Ok(Activation::Silu),
            "gelu_pytorch_tanh" | "gelu_new" => Ok(Activation::GeluTanh),
            "gelu" => Ok(Activation::Gelu),
            "relu2" => Ok(Activation::Relu2),
            other => Err(Error::unsupported(format!(
                "config.json: `{name}` is {other:?}, expected silu, gelu, gelu_pytorch_tanh or relu2"
            ))),
        }
    }

    /// I of layers without experts.
    pub(super) fn intermediate(self, fields: &Fields<'_>) -> Result<Option<usize>> {
        match self {
            Self::Llama4 => fields.find("intermediate_size_mlp"),
            // That of experts, of whom all layers consist.
            Self::Mixtral | Self::GptOss => Ok(None),
            _ => fields.find("intermediate_size"),
        }
    }

    /// Whether a stack of experts that is not quantised is `[E, K, N]`.
    pub(crate) fn is_transposed(self) -> bool {
        matches!(self, Self::Llama4 | Self::GptOss)
    }

    /// Whether rows of gate and up take turns.
    pub(crate) fn is_interleaved(self) -> bool {
        self == Self::GptOss
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(of, _)| of == self).and_then(|(_, names)| names.first());
        f.write_str(name.copied().unwrap_or_default())
    }
}
