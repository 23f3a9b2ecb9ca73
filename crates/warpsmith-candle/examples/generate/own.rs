//! candle's own models of unquantised checkpoints: what warpsmith's layers are compared with.

use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::{llama, qwen3_moe};
use serde_json::Value;

use crate::Result;

/// A model of candle-transformers.
pub enum Own {
    Llama(llama::Llama, llama::Cache),
    /// On CUDA with candle's fused kernel of experts.
    Qwen3Moe(qwen3_moe::ModelForCausalLM),
}

impl Own {
    /// In bf16; on the CPU, which multiplies none in candle, in f32.
    pub fn load(path: &Path, device: &Device) -> Result<Self> {
        let mut config: Value = serde_json::from_slice(&std::fs::read(path.join("config.json"))?)?;
        // What candle asks for, where transformers 5 writes it elsewhere, or not at all: no window is used.
        let elsewhere = [
            ("rope_theta", config["rope_parameters"]["rope_theta"].clone()),
            ("max_window_layers", config["num_hidden_layers"].clone()),
            ("num_experts", config["num_local_experts"].clone()),
            ("use_sliding_window", false.into()),
        ];
        for (name, value) in elsewhere {
            if config[name].is_null() {
                config[name] = value;
            }
        }
        let dtype = if device.is_cpu() { DType::F32 } else { DType::BF16 };
        // SAFETY: nobody changes the model's files while it runs.
        let weights = unsafe { VarBuilder::from_mmaped_safetensors(&safetensors_of(path)?, dtype, device)? };
        match config["model_type"].as_str() {
            Some("llama") => {
                let config = serde_json::from_value::<llama::LlamaConfig>(config)?.into_config(false);
                Ok(Self::Llama(llama::Llama::load(weights, &config)?, llama::Cache::new(true, dtype, &config, device)?))
            }
            Some("qwen3_moe") => {
                let config = serde_json::from_value::<qwen3_moe::Config>(config)?;
                Ok(Self::Qwen3Moe(qwen3_moe::ModelForCausalLM::new(&config, weights)?))
            }
            other => Err(format!("candle's own model: {other:?}, expected llama or qwen3_moe").into()),
        }
    }

    /// Logits `[vocabulary]` of what follows tokens `[1, tokens]`, of which `seen` have been before.
    pub fn forward(&mut self, ids: &Tensor, seen: usize) -> Result<Tensor> {
        Ok(match self {
            Self::Llama(model, cache) => model.forward(ids, seen, cache)?,
            Self::Qwen3Moe(model) => model.forward(ids, seen)?,
        }
        .flatten_all()?)
    }
}

/// The files with tensors of a model's folder.
pub fn safetensors_of(path: &Path) -> Result<Vec<PathBuf>> {
    let mut files: Vec<_> = std::fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|end| end == "safetensors"));
    Ok(files)
}
