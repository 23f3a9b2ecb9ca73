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
use crate::own::safetensors_of;

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
    /// Keys and values, `[1, heads, room, head]`.
    kept: [Tensor; 2],
}

/// The model, with room for the keys and values of so many tokens.
pub struct Model {
    config: Config,
    about: String,
    embedding: Tensor,
    layers: Vec<Layer>,
    norm: Tensor,
    head: Tensor,
    /// Cosines and sines of all places, `[room, head / 2]`.
    turns: [Tensor; 2],
    room: usize,
}

/// Where the tokens of a forward are in their text.
#[derive(Clone, Copy)]
pub enum Place<'a> {
    /// Behind so many.
    Behind(usize),
    /// One token, whose place `[1]` is known on the device alone; the mask `[1, room]` hides the places after it.
    At { place: &'a Tensor, mask: &'a Tensor },
}

/// What `warpsmith_checkpoint` does not need to know.
struct Config {
    heads: usize,
    kv_heads: usize,
    head: usize,
    theta: f64,
    epsilon: f32,
}

/// The tokens that nothing follows.
pub fn ends(path: &Path) -> Result<Vec<u32>> {
    let read = |name: &str| -> Result<Value> { Ok(serde_json::from_slice(&std::fs::read(path.join(name))?)?) };
    let said = read("generation_config.json").ok().map(|said| said["eos_token_id"].clone());
    let said = match said.filter(|ends| !ends.is_null()) {
        Some(said) => said,
        None => read("config.json")?["eos_token_id"].clone(),
    };
    Ok(match said {
        Value::Array(ids) => ids.iter().filter_map(Value::as_u64).map(|id| id as u32).collect(),
        id => id.as_u64().map(|id| id as u32).into_iter().collect(),
    })
}

impl Config {
    fn read(path: &Path) -> Result<(Self, usize, bool)> {
        let all: Value = serde_json::from_slice(&std::fs::read(path.join("config.json"))?)?;
        let number = |name: &str| all[name].as_u64().map(|number| number as usize);
        let needed = |name: &str| number(name).ok_or_else(|| format!("config.json: `{name}` is missing"));
        let heads = needed("num_attention_heads")?;
        let theta = all["rope_theta"].as_f64().or_else(|| all["rope_parameters"]["rope_theta"].as_f64());
        let config = Self {
            heads,
            kv_heads: number("num_key_value_heads").unwrap_or(heads),
            head: number("head_dim").unwrap_or(needed("hidden_size")? / heads),
            theta: theta.unwrap_or(10_000.0),
            epsilon: all["rms_norm_eps"].as_f64().unwrap_or(1e-6) as f32,
        };
        Ok((config, needed("num_hidden_layers")?, all["tie_word_embeddings"].as_bool().unwrap_or(false)))
    }
}

impl Model {
    pub fn load(path: &Path, device: &Device, room: usize) -> Result<Self> {
        // SAFETY: nobody changes the model's files while it runs.
        let checkpoint = unsafe { Checkpoint::map(path)? };
        // SAFETY: as above.
        let plain = unsafe { MmapedSafetensors::multi(&safetensors_of(path)?)? };
        // candle multiplies no bf16 on the CPU.
        let dtype = if device.is_cpu() { DType::F32 } else { DType::BF16 };
        let (config, count, is_tied) = Config::read(path)?;
        let tensor = |name: &str| -> Result<Tensor> { Ok(plain.load(name, device)?.to_dtype(dtype)?) };
        let embedding = tensor("model.embed_tokens.weight")?;
        let head = if is_tied { embedding.clone() } else { tensor("lm_head.weight")? };
        // What warpsmith's layers take.
        let given = if device.is_cpu() { DType::F16 } else { dtype };
        let (runtime, tokens) = (Runtime::new(device)?, Tokens::up_to(LIMIT).dtype(given));
        let kept = (1, config.kv_heads, room, config.head);
        let load = Load { checkpoint: &checkpoint, plain: &plain, runtime: &runtime, tokens, dtype, kept };
        let layers = (0..count).map(|layer| {
            eprint!("\rlayer {} of {count}", layer + 1);
            load.layer(&format!("model.layers.{layer}"))
        });
        let layers = layers.collect::<Result<_>>()?;
        eprintln!();
        let (norm, about) = (tensor("model.norm.weight")?, checkpoint.config().to_string());
        let turns = turns(&config, room, device, dtype)?;
        Ok(Self { config, about, embedding, layers, norm, head, turns, room })
    }

    pub fn describe(&self) -> &str {
        &self.about
    }

    /// The device that it is on.
    pub fn device(&self) -> &Device {
        self.embedding.device()
    }

    /// For each place what of the whole room it does not see, `[room, room]`.
    pub fn masks(&self) -> Result<Tensor> {
        mask(0, self.room, self.device(), self.embedding.dtype())
    }

    /// Logits `[1, tokens, vocabulary]` of tokens `[1, tokens]`.
    pub fn forward(&self, ids: &Tensor, place: Place<'_>, watch: &mut Watch) -> Result<Tensor> {
        let Self { config, embedding, layers, norm, head, room, .. } = self;
        let tokens = ids.dim(1)?;
        let (turned, mask) = match place {
            Place::Behind(seen) if seen + tokens > *room => {
                return Err(format!("{tokens} tokens behind {seen}: there is room for {room}").into());
            }
            Place::Behind(seen) => {
                let turned = self.turns.each_ref().map(|all| all.narrow(0, seen, tokens));
                (turned, (tokens > 1).then(|| mask(seen, tokens, ids.device(), embedding.dtype())).transpose()?)
            }
            Place::At { place, mask } => {
                (self.turns.each_ref().map(|all| all.index_select(place, 0)), Some(mask.clone()))
            }
        };
        let [cos, sin] = turned;
        let turned = [cos?, sin?];
        let mut x = embedding.index_select(&ids.flatten_all()?, 0)?.unsqueeze(0)?;
        for layer in layers {
            let h = rms_norm(&x, &layer.norms[0], config.epsilon)?;
            x = (x + layer.attend(config, &h, place, &turned, mask.as_ref(), watch)?)?;
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
        &self,
        config: &Config,
        x: &Tensor,
        place: Place<'_>,
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
        let v = by_heads(self.v.forward(x, watch)?, kv_heads)?;
        if let Some([of_q, of_k]) = &self.head_norms {
            (q, k) = (rms_norm(&q, of_q, epsilon)?, rms_norm(&k, of_k, epsilon)?);
        }
        let [cos, sin] = turned;
        (q, k) = (candle_nn::rotary_emb::rope(&q, cos, sin)?, candle_nn::rotary_emb::rope(&k, cos, sin)?);
        let (k, v) = self.keep(place, &k, &v)?;
        // Heads that share keys are rows of one product.
        let q = q.reshape((1, kv_heads, heads / kv_heads * tokens, head))?;
        let scores = (q.matmul(&k.transpose(2, 3)?)? / (head as f64).sqrt())?;
        let (rows, all) = (scores.dims().to_vec(), scores.dim(3)?);
        let scores = match mask {
            Some(mask) => scores.reshape((1, heads, tokens, all))?.broadcast_add(mask)?.reshape(rows)?,
            None => scores,
        };
        let all = softmax_last_dim(&scores)?.matmul(&v)?.reshape((1, heads, tokens, head))?;
        let all = all.transpose(1, 2)?.reshape((1, tokens, heads * head))?.contiguous()?;
        self.o.forward(&all, watch)
    }

    /// Keeps keys and values `[1, heads, tokens, head]`; gives those of all places that may be seen.
    fn keep(&self, place: Place<'_>, k: &Tensor, v: &Tensor) -> Result<(Tensor, Tensor)> {
        let [keys, values] = &self.kept;
        match place {
            Place::Behind(seen) => {
                keys.slice_set(k, 2, seen)?;
                values.slice_set(v, 2, seen)?;
                let all = seen + k.dim(2)?;
                Ok((keys.narrow(2, 0, all)?, values.narrow(2, 0, all)?))
            }
            Place::At { place, .. } => {
                let at = place.broadcast_as(k.shape())?.contiguous()?;
                keys.scatter_set(&at, k, 2)?;
                values.scatter_set(&at, v, 2)?;
                Ok((keys.clone(), values.clone()))
            }
        }
    }
}

/// Cosines and sines of the first places.
fn turns(config: &Config, places: usize, device: &Device, dtype: DType) -> Result<[Tensor; 2]> {
    let half = config.head / 2;
    let angles = (0..places).flat_map(|at| {
        (0..half).map(move |i| (at as f64 * config.theta.powf(-2.0 * i as f64 / config.head as f64)) as f32)
    });
    let angles = Tensor::from_iter(angles, device)?.reshape((places, half))?;
    Ok([angles.cos()?.to_dtype(dtype)?, angles.sin()?.to_dtype(dtype)?])
}

/// Nothing of what comes later, `[tokens, seen + tokens]`.
fn mask(seen: usize, tokens: usize, device: &Device, dtype: DType) -> Result<Tensor> {
    let all = seen + tokens;
    let values = (0..tokens)
        .flat_map(|row| (0..all).map(move |column| if column > seen + row { f32::NEG_INFINITY } else { 0.0 }));
    Ok(Tensor::from_iter(values, device)?.reshape((tokens, all))?.to_dtype(dtype)?)
}

/// What layers are loaded from.
struct Load<'a> {
    checkpoint: &'a Checkpoint,
    plain: &'a MmapedSafetensors,
    runtime: &'a Runtime,
    tokens: Tokens,
    dtype: DType,
    /// The shape of keys.
    kept: (usize, usize, usize, usize),
}

impl Load<'_> {
    fn tensor(&self, name: &str) -> Result<Tensor> {
        Ok(self.plain.load(name, self.runtime.device())?.to_dtype(self.dtype)?)
    }

    /// What is kept of no tokens: no NaN, which no mask would hide.
    fn zeros(&self) -> Result<Tensor> {
        Ok(Tensor::zeros(self.kept, self.dtype, self.runtime.device())?)
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
            kept: [self.zeros()?, self.zeros()?],
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
