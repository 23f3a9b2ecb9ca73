//! Checkpoints: models that are not quantised, made here, and those that others have written.

use std::fs;
use std::path::Path;

use half::bf16;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Map, json};

/// A llama's folder, with a layer's down projection `[N, K]` in each of so many files.
pub fn checkpoint(folder: &Path, files: usize, [n, k]: [usize; 2]) {
    fs::create_dir(folder).unwrap();
    let config = json!({"architectures": ["LlamaForCausalLM"], "hidden_size": n, "intermediate_size": k});
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    fs::write(folder.join("tokenizer.json"), "{}").unwrap();
    let mut random = SmallRng::seed_from_u64(1);
    let mut map = Map::new();
    for file in 0..files {
        let (name, tensor) = (format!("model-{file}.safetensors"), format!("model.layers.{file}.mlp.down_proj.weight"));
        let about = json!({"dtype": "BF16", "shape": [n, k], "data_offsets": [0, 2 * n * k]});
        let mut header = json!({"__metadata__": {"format": "pt"}, &*tensor: about}).to_string();
        while !header.len().is_multiple_of(8) {
            header.push(' ');
        }
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend((0..n * k).flat_map(|_| bf16::from_f32(random.random_range(-1.0..1.0)).to_le_bytes()));
        fs::write(folder.join(&name), bytes).unwrap();
        map.insert(tensor, json!(name));
    }
    let index = json!({"metadata": {"total_size": 2 * n * k * files}, "weight_map": map});
    fs::write(folder.join("model.safetensors.index.json"), index.to_string()).unwrap();
}

/// The checkpoints that others have written: folders with `golden.json` and `io.safetensors`, in order.
///
/// # Panics
/// If they are not there.
#[must_use]
pub fn fixtures() -> Vec<std::path::PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/warpsmith-checkpoint/tests/fixtures");
    let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = all.filter(|path| path.join("io.safetensors").is_file()).collect();
    all.sort();
    assert!(all.len() >= 20, "{all:?}");
    all
}
