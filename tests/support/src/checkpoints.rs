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
        let header = json!({"__metadata__": {"format": "pt"}, &*tensor: about});
        let values = (0..n * k).flat_map(|_| bf16::from_f32(random.random_range(-1.0..1.0)).to_le_bytes());
        write(&folder.join(&name), &header.to_string(), values);
        map.insert(tensor, json!(name));
    }
    let index = json!({"metadata": {"total_size": 2 * n * k * files}, "weight_map": map});
    fs::write(folder.join("model.safetensors.index.json"), index.to_string()).unwrap();
}

/// The linear layer that [`mxfp4_qkv`] has in three parts.
pub const QKV: &str = "model.layers.0.self_attn.qkv_proj";

/// A llama's folder with q `[64, 64]`, k and v `[32, 64]` in MXFP4. The largest scale of each is 2^(exponent − 127), the others are
/// less by up to 3 powers of two.
pub fn mxfp4_qkv(folder: &Path, exponents: [u8; 3]) {
    const HIDDEN: usize = 64;
    let config = json!({"architectures": ["LlamaForCausalLM"], "hidden_size": HIDDEN, "intermediate_size": HIDDEN,
        "num_attention_heads": 4, "num_key_value_heads": 2});
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let mut random = SmallRng::seed_from_u64(2);
    let (mut header, mut all) = (Map::new(), Vec::new());
    for ((part, n), exponent) in [("q_proj", 64), ("k_proj", 32), ("v_proj", 32)].into_iter().zip(exponents) {
        let module = QKV.replace("qkv_proj", part);
        // No block is of zeros, and the first has the largest scale.
        let codes: Vec<u8> = (0..n * HIDDEN / 2).map(|_| random.random_range(0..=255u8) | 0x02).collect();
        let scales = (0..n * HIDDEN / 32).map(|at| exponent - if at == 0 { 0 } else { random.random_range(0..4u8) });
        for (name, columns, bytes) in
            [("weight_packed", HIDDEN / 2, codes), ("weight_scale", HIDDEN / 32, scales.collect())]
        {
            let ends = [all.len(), all.len() + bytes.len()];
            header.insert(
                format!("{module}.{name}"),
                json!({"dtype": "U8", "shape": [n, columns], "data_offsets": ends}),
            );
            all.extend(bytes);
        }
    }
    write(&folder.join("model.safetensors"), &serde_json::Value::Object(header).to_string(), all.into_iter());
}

/// A safetensors file.
fn write(path: &Path, header: &str, data: impl Iterator<Item = u8>) {
    let header = format!("{header:0$}", header.len().next_multiple_of(8));
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    fs::write(path, bytes).unwrap();
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
