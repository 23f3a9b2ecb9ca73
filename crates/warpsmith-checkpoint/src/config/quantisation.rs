//! What a checkpoint says of how its modules are quantised: enough to find that its tensors say otherwise.

use regex_lite::Regex;
use serde_json::{Map, Value};
use warpsmith::internal::Raise;
use warpsmith::{Error, Result};

use crate::weight::{Storage, Weight};

/// What is not quantised, and what quantises the rest.
#[derive(Debug, Default)]
pub(crate) struct Quantisation {
    excluded: Vec<Pattern>,
    /// The algorithm of all that is not excluded.
    algorithm: Option<Algorithm>,
    /// Whether that is known to hold for all the rest.
    is_for_all: bool,
    /// Those of some modules, where there are several (ModelOpt).
    modules: Map<String, Value>,
}

/// What of an algorithm tensors show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Nvfp4,
    Mxfp4,
    Fp8,
    /// Said of each module.
    Mixed,
}

/// Names of modules.
#[derive(Debug)]
enum Pattern {
    /// With `*` for anything.
    Glob(String),
    /// From the beginning of a name.
    Regex(Regex),
}

impl Pattern {
    fn has(&self, name: &str) -> bool {
        match self {
            // What is excluded is so with all within.
            Self::Glob(glob) => is_within(name, glob),
            Self::Regex(regex) => regex.find(name).is_some_and(|found| found.start() == 0),
        }
    }
}

/// Whether a module, or one that it is in, is like a pattern in which `*` stands for anything.
pub(crate) fn is_within(name: &str, glob: &str) -> bool {
    prefixes(name).any(|prefix| is_like(prefix, glob))
}

/// A module's name and those of the modules that it is in.
fn prefixes(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices('.').map(|(at, _)| &name[..at]).chain([name])
}

/// Whether a text is like a pattern in which `*` stands for anything.
fn is_like(text: &str, pattern: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return text == pattern };
    let Some(mut left) = text.strip_prefix(head) else { return false };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return left.ends_with(part);
        }
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    true
}

impl Quantisation {
    /// From `config.json` and, where it is, ModelOpt's `hf_quant_config.json`.
    pub(crate) fn parse(config: &Map<String, Value>, modelopt: Option<&Map<String, Value>>) -> Result<Self> {
        let within = |all: &'_ Map<String, Value>, name: &str| all.get(name).and_then(Value::as_object).cloned();
        let text = config.get("text_config").and_then(Value::as_object);
        let said = within(config, "quantization_config")
            .or_else(|| text.and_then(|text| within(text, "quantization_config")))
            .or_else(|| modelopt.and_then(|modelopt| within(modelopt, "quantization")));
        let Some(said) = said else { return Ok(Self::default()) };
        let word = |name: &str| said.get(name).and_then(Value::as_str);
        let method = word("quant_method").unwrap_or("modelopt");
        let algorithm = match method {
            "mxfp4" => Some(Algorithm::Mxfp4),
            "compressed-tensors" => match word("format").unwrap_or("nvfp4-pack-quantized") {
                "nvfp4-pack-quantized" => Some(Algorithm::Nvfp4),
                "mxfp4-pack-quantized" => Some(Algorithm::Mxfp4),
                "float-quantized" | "naive-quantized" => Some(Algorithm::Fp8),
                "mixed-precision" => Some(Algorithm::Mixed),
                "dense" => None,
                other => return Err(unread("`format`", other)),
            },
            "modelopt" | "modelopt_fp4" | "fp8" => match word("moe_quant_algo").or(word("quant_algo")) {
                Some(word) => Some(modelopt_algorithm(word)?),
                None => None,
            },
            other => return Err(unread("`quant_method`", other)),
        };
        let mut is_for_all = true;
        for group in said.get("config_groups").and_then(Value::as_object).into_iter().flat_map(Map::values) {
            let targets = group.get("targets").and_then(Value::as_array);
            is_for_all &= targets.is_none_or(|targets| targets.iter().any(|target| target == "Linear"));
            let weights = group.get("weights").and_then(|weights| weights.get("group_size")).and_then(Value::as_u64);
            let expected = match algorithm {
                Some(Algorithm::Nvfp4) => 16,
                Some(Algorithm::Mxfp4) => 32,
                _ => continue,
            };
            if let Some(size) = weights.filter(|size| *size != expected) {
                return Err(Error::unsupported(format!(
                    "the quantisation's `group_size` is {size}, expected {expected}"
                )));
            }
        }
        let listed = ["exclude_modules", "ignore", "modules_to_not_convert"];
        let listed = listed.iter().filter_map(|name| said.get(*name).and_then(Value::as_array)).flatten();
        let listed: Vec<_> = listed.filter_map(Value::as_str).map(pattern).collect();
        Ok(Self {
            is_for_all: is_for_all && listed.iter().all(Option::is_some),
            excluded: listed.into_iter().flatten().collect(),
            algorithm,
            modules: within(&said, "quantized_layers").unwrap_or_default(),
        })
    }

    /// Refuses a weight that is stored otherwise than is said of it.
    pub(crate) fn check(&self, weight: &Weight<'_>) -> Result<()> {
        let (name, storage) = (weight.name(), weight.storage());
        let module = name.split('[').next().unwrap_or(name);
        let is_plain = matches!(storage, Storage::Plain(_));
        let of_module = prefixes(module).filter_map(|prefix| self.modules.get(prefix)).last();
        let said = match of_module.and_then(|of| of.get("quant_algo")).and_then(Value::as_str) {
            Some(word) => Some(modelopt_algorithm(word)?),
            None if self.excluded.iter().any(|pattern| pattern.has(module)) => {
                if is_plain || self.algorithm == Some(Algorithm::Mixed) {
                    return Ok(());
                }
                return Err(Error::data(format!(
                    "weight `{name}` is {storage}, the configuration says that it is not quantised"
                )));
            }
            None if is_plain && !self.is_for_all => return Ok(()),
            None => self.algorithm,
        };
        let is_said = match said {
            None | Some(Algorithm::Mixed) => true,
            Some(Algorithm::Nvfp4) => storage == Storage::Nvfp4,
            Some(Algorithm::Mxfp4) => storage == Storage::Mxfp4,
            Some(Algorithm::Fp8) => storage == Storage::Fp8,
        };
        if is_said {
            return Ok(());
        }
        let said = match said {
            Some(Algorithm::Mxfp4) => Storage::Mxfp4,
            Some(Algorithm::Fp8) => Storage::Fp8,
            _ => Storage::Nvfp4,
        };
        Err(Error::data(format!("weight `{name}` is {storage}, the configuration says {said}")))
    }
}

fn modelopt_algorithm(word: &str) -> Result<Algorithm> {
    match word {
        "NVFP4" | "W4A16_NVFP4" | "W4A8_NVFP4_FP8" | "NVFP4_AWQ" => Ok(Algorithm::Nvfp4),
        "FP8" => Ok(Algorithm::Fp8),
        "MXFP4" | "W4A8_MXFP4_FP8" => Ok(Algorithm::Mxfp4),
        "MIXED_PRECISION" => Ok(Algorithm::Mixed),
        other => Err(unread("`quant_algo`", other)),
    }
}

fn unread(what: &str, found: &str) -> Error {
    Error::unsupported(format!("the quantisation's {what} is {found:?}, which is not read"))
}

/// As compressed-tensors (`re:`) and ModelOpt have them. Nothing for one that cannot be read, such as with a look-ahead.
fn pattern(text: &str) -> Option<Pattern> {
    match text.strip_prefix("re:") {
        Some(regex) => Regex::new(regex).ok().map(Pattern::Regex),
        None => Some(Pattern::Glob(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_like_patterns() {
        for (name, text, expected) in [
            ("lm_head", "lm_head", true),
            ("model.layers.0.self_attn.q_proj", "model.layers.0.self_attn*", true),
            ("model.layers.0.self_attn.q_proj", "*.self_attn.*", true),
            ("model.layers.0.self_attn.q_proj", "model.layers.0.self_attn", true),
            ("model.layers.10.mlp", "model.layers.1", false),
            ("model.layers.0.mlp.gate", "*mlp.gate", true),
            ("model.layers.0.mlp.gate_proj", "*mlp.gate", false),
            ("model.layers.0.mlp.gate_proj", "re:.*mlp.gate$", false),
            ("model.layers.0.mlp.gate", "re:.*mlp.gate$", true),
            ("a.b", "re:b", false),
            ("ab", "a*b*b", false),
            ("abb", "a*b*b", true),
        ] {
            assert_eq!(pattern(text).unwrap().has(name), expected, "{name} {text}");
        }
        assert!(pattern("re:^(?!.*experts).*").is_none());
    }
}
