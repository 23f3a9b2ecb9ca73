//! A decoder whose linear layers, MLPs and experts are warpsmith's where the checkpoint has them quantised.

use std::path::Path;
use std::time::{Duration, Instant};

use candle_core::safetensors::MmapedSafetensors;
use candle_core::{DType, Device, Module, Tensor};
use candle_nn::ops::{rms_norm, softmax_last_dim};
use serde_json::Value;
use warpsmith_candle::{Nvfp4GatedMlp, Nvfp4Linear, Nvfp4Moe, Runtime, Tokens};
use warpsmith_checkpoint::{self as checkpoint, Checkpoint, Storage};

use crate::Result;

/// Tokens of one forward at most.
const LIMIT: u32 = 4096;

/// How long warpsmith's layers take.
#[derive(Debug, Default)]
pub struct Watch(Duration);

impl Watch {
    pub fn seconds(&self) -> f64 {
        self.0.as_secs_f64()
    }

    fn during<T>(&mut self, run: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let made = run();
        self.0 += start.elapsed();
        made
    }
}

/// x·Wᵀ + b.
enum Projection {
    Quantised(Nvfp4Linear),
    Plain(candle_nn::Linear),
}

impl Projection {
    fn forward(&self, x: &Tensor, watch: &mut Watch) -> Result<Tensor> {
        Ok(match self {
            Self::Quantised(of) => watch.during(|| through(x, |x| of.forward(x)))?,
            Self::Plain(of) => of.forward(x)?,
        })
    }
}

enum Mlp {
    Dense(Nvfp4GatedMlp),
    Experts(Nvfp4Moe),
}

struct Layer {
    norms: [Tensor; 2],
    /// Of the heads of q and k, where the model has them.
    head_norms: Option<[Tensor; 2]>,
    q: Projection,
    k: Projection,
    v: Projection,
    o: Projection,
    mlp: Mlp,
    /// Keys and values of the tokens so far.
    seen: Option<[Tensor; 2]>,
}

/// The model.
pub struct Model {
    config: Config,
    about: String,
    embedding: Tensor,
    layers: Vec<Layer>,
    norm: Tensor,
    head: Tensor,
    dtype: DType,
}

/// What `warpsmith_checkpoint` does not need to know.
struct Config {
    heads: usize,
    kv_heads: usize,
    head: usize,
    theta: f64,
    epsilon: f32,
    ends: Vec<u32>,
}

impl Config {
    fn read(path: &Path) -> Result<(Self, usize, bool)> {
        let all: Value = serde_json::from_slice(&std::fs::read(path.join("config.json"))?)?;
        let number = |name: &str| all[name].as_u64().map(|number| number as usize);
        let needed = |name: &str| number(name).ok_or_else(|| format!("config.json: `{name}` is missing"));
        let heads = needed("num_attention_heads")?;
        let theta = all["rope_theta"].as_f64().or_else(|| all["rope_parameters"]["rope_theta"].as_f64());
        let said = std::fs::read(path.join("generation_config.json")).ok();
        let said: Option<Value> = said.and_then(|said| serde_json::from_slice(&said).ok());
        let said = said.map(|said| said["eos_token_id"].clone()).filter(|ends| !ends.is_null());
        let ends = match said.as_ref().unwrap_or(&all["eos_token_id"]) {
            Value::Array(ids) => ids.iter().filter_map(Value::as_u64).map(|id| id as u32).collect(),
            id => id.as_u64().map(|id| id as u32).into_iter().collect(),
        };
        let config = Self {
            heads,
            kv_heads: number("num_key_value_heads").unwrap_or(heads),
            head: number("head_dim").unwrap_or(needed("hidden_size")? / heads),
            theta: theta.unwrap_or(10_000.0),
            epsilon: all["rms_norm_eps"].as_f64().unwrap_or(1e-6) as f32,
            ends,
        };
        Ok((config, needed("num_hidden_layers")?, all["tie_word_embeddings"].as_bool().unwrap_or(false)))
    }
}

impl Model {
    pub fn load(path: &Path, device: &Device) -> Result<Self> {
        // SAFETY: nobody changes the model's files while it runs.
        let checkpoint = unsafe { Checkpoint::map(path)? };
        let mut files: Vec<_> = std::fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        files.retain(|file| file.extension().is_some_and(|end| end == "safetensors"));
        // SAFETY: as above.
        let plain = unsafe { MmapedSafetensors::multi(&files)? };
        // candle multiplies no bf16 on the CPU.
        let dtype = if device.is_cpu() { DType::F32 } else { DType::BF16 };
        let (config, count, is_tied) = Config::read(path)?;
        let tensor = |name: &str| -> Result<Tensor> { Ok(plain.load(name, device)?.to_dtype(dtype)?) };
        let embedding = tensor("model.embed_tokens.weight")?;
        let head = if is_tied { embedding.clone() } else { tensor("lm_head.weight")? };
        // What warpsmith's layers take.
        let given = if device.is_cpu() { DType::F16 } else { dtype };
        let (runtime, tokens) = (Runtime::new(device)?, Tokens::up_to(LIMIT).dtype(given));
        let load = Load { checkpoint: &checkpoint, plain: &plain, runtime: &runtime, tokens, dtype };
        let layers = (0..count).map(|layer| {
            eprint!("\rlayer {} of {count}", layer + 1);
            load.layer(&format!("model.layers.{layer}"))
        });
        let layers = layers.collect::<Result<_>>()?;
        eprintln!();
        let (norm, about) = (tensor("model.norm.weight")?, checkpoint.config().to_string());
        Ok(Self { config, about, embedding, layers, norm, head, dtype })
    }

    pub fn describe(&self) -> &str {
        &self.about
    }

    /// Whether nothing follows this token.
    pub fn ends(&self, id: u32) -> bool {
        self.config.ends.contains(&id)
    }

    /// Forgets all tokens so far.
    pub fn forget(&mut self) {
        self.layers.iter_mut().for_each(|layer| layer.seen = None);
    }

    /// Logits `[1, tokens, vocabulary]` of tokens `[1, tokens]`, of which `seen` have been before.
    pub fn forward(&mut self, ids: &Tensor, seen: usize, watch: &mut Watch) -> Result<Tensor> {
        let Self { config, embedding, layers, norm, head, dtype, .. } = self;
        let tokens = ids.dim(1)?;
        let turned = turns(config, seen, tokens, ids.device(), *dtype)?;
        let mask = (tokens > 1).then(|| mask(seen, tokens, ids.device(), *dtype)).transpose()?;
        let mut x = embedding.index_select(&ids.flatten_all()?, 0)?.unsqueeze(0)?;
        for layer in layers {
            let attended =
                layer.attend(config, &rms_norm(&x, &layer.norms[0], config.epsilon)?, &turned, mask.as_ref(), watch)?;
            x = (x + attended)?;
            let h = rms_norm(&x, &layer.norms[1], config.epsilon)?;
            x = (x + layer.mlp.forward(&h, watch)?)?;
        }
        let x = rms_norm(&x, norm, config.epsilon)?;
        Ok(x.squeeze(0)?.matmul(&head.t()?)?.unsqueeze(0)?)
    }
}

/// What layers take on the CPU, too; the result in the model's own type.
fn through(x: &Tensor, run: impl FnOnce(&Tensor) -> candle_core::Result<Tensor>) -> candle_core::Result<Tensor> {
    match x.dtype() {
        DType::F32 => run(&x.to_dtype(DType::F16)?)?.to_dtype(DType::F32),
        _ => run(x),
    }
}

impl Mlp {
    fn forward(&self, x: &Tensor, watch: &mut Watch) -> Result<Tensor> {
        Ok(watch.during(|| match self {
            Self::Dense(of) => through(x, |x| of.forward(x)),
            Self::Experts(of) => through(x, |x| of.forward(x)),
        })?)
    }
}

impl Layer {
    fn attend(
        &mut self,
        config: &Config,
        x: &Tensor,
        turned: &[Tensor; 2],
        mask: Option<&Tensor>,
        watch: &mut Watch,
    ) -> Result<Tensor> {
        let Config { heads, kv_heads, head, epsilon, .. } = *config;
        let tokens = x.dim(1)?;
        let by_heads = |x: Tensor, heads: usize| -> Result<Tensor> {
            Ok(x.reshape((1, tokens, heads, head))?.transpose(1, 2)?.contiguous()?)
        };
        let (mut q, mut k) =
            (by_heads(self.q.forward(x, watch)?, heads)?, by_heads(self.k.forward(x, watch)?, kv_heads)?);
        let mut v = by_heads(self.v.forward(x, watch)?, kv_heads)?;
        if let Some([of_q, of_k]) = &self.head_norms {
            (q, k) = (rms_norm(&q, of_q, epsilon)?, rms_norm(&k, of_k, epsilon)?);
        }
        let [cos, sin] = turned;
        (q, k) = (candle_nn::rotary_emb::rope(&q, cos, sin)?, candle_nn::rotary_emb::rope(&k, cos, sin)?);
        if let Some([keys, values]) = &self.seen {
            (k, v) = (Tensor::cat(&[keys, &k], 2)?, Tensor::cat(&[values, &v], 2)?);
        }
        self.seen = Some([k.clone(), v.clone()]);
        let repeated = |x: &Tensor| -> Result<Tensor> {
            let (_, _, all, _) = x.dims4()?;
            let x = x.unsqueeze(2)?.expand((1, kv_heads, heads / kv_heads, all, head))?;
            Ok(x.reshape((1, heads, all, head))?.contiguous()?)
        };
        let scores = (q.matmul(&repeated(&k)?.transpose(2, 3)?.contiguous()?)? / (head as f64).sqrt())?;
        let scores = match mask {
            Some(mask) => scores.broadcast_add(mask)?,
            None => scores,
        };
        let all = softmax_last_dim(&scores)?.matmul(&repeated(&v)?)?;
        let all = all.transpose(1, 2)?.reshape((1, tokens, heads * head))?.contiguous()?;
        self.o.forward(&all, watch)
    }
}

/// Cosines and sines of the places of tokens.
fn turns(config: &Config, seen: usize, tokens: usize, device: &Device, dtype: DType) -> Result<[Tensor; 2]> {
    let half = config.head / 2;
    let angles = (seen..seen + tokens).flat_map(|at| {
        (0..half).map(move |i| (at as f64 * config.theta.powf(-2.0 * i as f64 / config.head as f64)) as f32)
    });
    let angles = Tensor::from_iter(angles, device)?.reshape((tokens, half))?;
    Ok([angles.cos()?.to_dtype(dtype)?, angles.sin()?.to_dtype(dtype)?])
}

/// Nothing of what comes later.
fn mask(seen: usize, tokens: usize, device: &Device, dtype: DType) -> Result<Tensor> {
    let all = seen + tokens;
    let values = (0..tokens)
        .flat_map(|row| (0..all).map(move |column| if column > seen + row { f32::NEG_INFINITY } else { 0.0 }));
    Ok(Tensor::from_iter(values, device)?.reshape((1, 1, tokens, all))?.to_dtype(dtype)?)
}

/// What layers are loaded from.
struct Load<'a> {
    checkpoint: &'a Checkpoint,
    plain: &'a MmapedSafetensors,
    runtime: &'a Runtime,
    tokens: Tokens,
    dtype: DType,
}

impl Load<'_> {
    fn tensor(&self, name: &str) -> Result<Tensor> {
        Ok(self.plain.load(name, self.runtime.device())?.to_dtype(self.dtype)?)
    }

    fn layer(&self, name: &str) -> Result<Layer> {
        let norm = |of: &str| self.tensor(&format!("{name}.{of}.weight"));
        let projection = |of: &str| self.projection(&format!("{name}.self_attn.{of}_proj"));
        let has_head_norms = self.plain.get(&format!("{name}.self_attn.q_norm.weight")).is_ok();
        let mlp = format!("{name}.mlp");
        Ok(Layer {
            norms: [norm("input_layernorm")?, norm("post_attention_layernorm")?],
            head_norms: match has_head_norms {
                true => Some([norm("self_attn.q_norm")?, norm("self_attn.k_norm")?]),
                false => None,
            },
            q: projection("q")?,
            k: projection("k")?,
            v: projection("v")?,
            o: projection("o")?,
            mlp: match self.checkpoint.module(&mlp)? {
                checkpoint::Module::Moe(_) => {
                    Mlp::Experts(Nvfp4Moe::load(self.checkpoint, &mlp, self.runtime, self.tokens)?)
                }
                _ => Mlp::Dense(Nvfp4GatedMlp::load(self.checkpoint, &mlp, self.runtime, self.tokens)?),
            },
            seen: None,
        })
    }

    fn projection(&self, name: &str) -> Result<Projection> {
        let module = self.checkpoint.module(name)?;
        if let checkpoint::Module::Linear(product) = &module
            && product.parts().iter().all(|part| matches!(part.storage(), Storage::Plain(_)))
        {
            let bias = product.bias().map(|_| self.tensor(&format!("{name}.bias"))).transpose()?;
            return Ok(Projection::Plain(candle_nn::Linear::new(self.tensor(&format!("{name}.weight"))?, bias)));
        }
        Ok(Projection::Quantised(Nvfp4Linear::load(self.checkpoint, name, self.runtime, self.tokens)?))
    }
}
