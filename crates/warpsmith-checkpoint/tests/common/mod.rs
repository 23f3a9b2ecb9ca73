//! Small checkpoints made by hand.

#![allow(dead_code, clippy::unwrap_used)] // each test has its own part of it

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};
use tempfile::TempDir;
use warpsmith_checkpoint::Checkpoint;

/// A model's folder that is not written yet.
#[derive(Clone)]
pub struct Model {
    pub config: Value,
    pub tensors: BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>,
}

pub const HIDDEN: usize = 64;
pub const INTERMEDIATE: usize = 32;
pub const MLP: &str = "model.layers.0.mlp";

impl Model {
    /// A Llama of one layer's MLP, in ModelOpt's NVFP4; gate and up have factors of their own.
    pub fn llama() -> Self {
        let config = json!({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN,
            "intermediate_size": INTERMEDIATE, "num_hidden_layers": 1, "num_attention_heads": 4,
            "hidden_act": "silu", "torch_dtype": "bfloat16",
            "quantization_config": { "quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"] },
        });
        let mut model = Self { config, tensors: BTreeMap::new() };
        for (seed, (name, n, k, factor)) in [
            ("gate_proj", INTERMEDIATE, HIDDEN, 0.5f32),
            ("up_proj", INTERMEDIATE, HIDDEN, 0.125),
            ("down_proj", HIDDEN, INTERMEDIATE, 0.25),
        ]
        .into_iter()
        .enumerate()
        {
            model.nvfp4(&format!("{MLP}.{name}"), n, k, factor, seed as u64);
        }
        model
    }

    /// Adds a matrix as ModelOpt has it.
    pub fn nvfp4(&mut self, name: &str, n: usize, k: usize, factor: f32, seed: u64) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let codes = (0..n * k / 2).map(|_| rng.u8(..)).collect();
        let scales = (0..n * k / 16).map(|_| rng.u8(0x28..0x48)).collect();
        self.put(&format!("{name}.weight"), Dtype::U8, &[n, k / 2], codes);
        self.put(&format!("{name}.weight_scale"), Dtype::F8_E4M3, &[n, k / 16], scales);
        self.put(&format!("{name}.weight_scale_2"), Dtype::F32, &[], factor.to_le_bytes().to_vec());
    }

    pub fn put(&mut self, name: &str, dtype: Dtype, shape: &[usize], bytes: Vec<u8>) {
        self.tensors.insert(name.to_owned(), (dtype, shape.to_vec(), bytes));
    }

    /// The bytes of one file with these tensors.
    pub fn file(&self, names: impl Fn(&str) -> bool) -> Vec<u8> {
        let kept = self.tensors.iter().filter(|(name, _)| names(name));
        let views = kept.map(|(name, (dtype, shape, bytes))| {
            (name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).unwrap())
        });
        safetensors::serialize(views, None).unwrap()
    }

    /// Writes it as one file.
    pub fn write(&self) -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("config.json"), self.config.to_string()).unwrap();
        fs::write(dir.path().join("model.safetensors"), self.file(|_| true)).unwrap();
        dir
    }

    /// Writes it in two files, with an index.
    pub fn write_in_two(&self) -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("config.json"), self.config.to_string()).unwrap();
        let is_first = |name: &str| name.contains("up_proj");
        let files = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
        fs::write(dir.path().join(files[0]), self.file(is_first)).unwrap();
        fs::write(dir.path().join(files[1]), self.file(|name| !is_first(name))).unwrap();
        let map: serde_json::Map<_, _> =
            self.tensors.keys().map(|name| (name.clone(), json!(files[usize::from(!is_first(name))]))).collect();
        let index = json!({ "metadata": { "total_size": 1 }, "weight_map": map });
        fs::write(dir.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
        dir
    }
}

/// The checkpoint in this folder.
pub fn map(dir: &Path) -> warpsmith::Result<Checkpoint> {
    // SAFETY: the folder is the test's own.
    unsafe { Checkpoint::map(dir) }
}

/// Why this folder is none, or its first MLP is none; on one line, without a panic.
pub fn refusal(dir: &Path) -> String {
    let read = || map(dir).and_then(|model| model.module(MLP).map(drop));
    let text = read().unwrap_err().to_string();
    assert!(!text.contains('\n') && text.len() < 1000, "{text}");
    text
}
