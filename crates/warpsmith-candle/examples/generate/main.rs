//! A model from its checkpoint to text: prompt in, tokens out; or the perplexity of a text.
//!
//! ```text
//! cargo run --release --example generate -- --model DIR --prompt "The capital of France is" --tokens 32
//! cargo run --release --example generate -- --model DIR --perplexity text.txt
//! ```
//!
//! DIR holds config.json, safetensors and tokenizer.json of a Llama, Mistral, Qwen2, Qwen3 or Qwen3-MoE in NVFP4
//! (`warpsmith quantize` makes one); without tokenizer.json, texts are numbers of tokens: 1,2,3. What is not quantised is
//! candle's own. Without the feature `cuda` all runs on the CPU.
//!
//! On CUDA a step after the prompt is one captured graph; `--by forward` launches each kernel instead. `--by own` runs
//! candle-transformers' model of an unquantised Llama or Qwen3-MoE, to compare with. Times are those of steps alone.

#![allow(clippy::print_stdout, clippy::print_stderr)]

mod model;
mod own;
mod step;

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use candle_core::{D, DType, Device, Tensor};
use tokenizers::Tokenizer;

use model::{Model, Place, Watch, ends};
use own::Own;
use step::Step;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Tokens of a text that one forward of a perplexity sees.
const WINDOW: usize = 512;

/// Rows of keys are a multiple of this, which products take faster.
const ROOM: usize = 64;

/// How steps after the prompt are made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// On the device alone: on CUDA a captured graph.
    Step,
    /// A forward.
    Forward,
    /// A forward of candle's own model.
    Own,
}

struct Args {
    model: PathBuf,
    prompt: String,
    tokens: usize,
    by: By,
    perplexity: Option<PathBuf>,
}

fn args() -> Result<Args> {
    let prompt = "Once upon a time".to_owned();
    let mut args = Args { model: PathBuf::new(), prompt, tokens: 64, by: By::Step, perplexity: None };
    let mut given = std::env::args().skip(1);
    while let Some(option) = given.next() {
        let value = given.next().ok_or_else(|| format!("{option}: a value is missing"))?;
        match (option.as_str(), value.as_str()) {
            ("--model", _) => args.model = value.into(),
            ("--prompt", _) => args.prompt = value,
            ("--tokens", _) => args.tokens = value.parse()?,
            ("--perplexity", _) => args.perplexity = Some(value.into()),
            ("--by", "step") => args.by = By::Step,
            ("--by", "forward") => args.by = By::Forward,
            ("--by", "own") => args.by = By::Own,
            ("--by", _) => return Err(format!("--by {value}: expected step, forward or own").into()),
            _ => return Err(format!("{option}: expected --model, --prompt, --tokens, --by or --perplexity").into()),
        }
    }
    if args.model.as_os_str().is_empty() { Err("--model DIR is missing".into()) } else { Ok(args) }
}

/// The first GPU, with a stream that can be captured; without the feature `cuda` the CPU.
fn device() -> Result<Device> {
    #[cfg(feature = "cuda")]
    {
        let device = Device::new_cuda_with_stream(0)?;
        // SAFETY: all is in one stream, and nothing has been allocated yet.
        unsafe { device.as_cuda_device()?.disable_event_tracking() };
        Ok(device)
    }
    #[cfg(not(feature = "cuda"))]
    Ok(Device::Cpu)
}

/// What texts are made of.
enum Words {
    Known(Box<Tokenizer>),
    Numbers,
}

impl Words {
    fn load(model: &Path) -> Result<Self> {
        let path = model.join("tokenizer.json");
        if path.exists() { Ok(Self::Known(Box::new(Tokenizer::from_file(path)?))) } else { Ok(Self::Numbers) }
    }

    fn encode(&self, text: &str, is_prompt: bool) -> Result<Vec<u32>> {
        match self {
            Self::Known(tokenizer) => Ok(tokenizer.encode(text, is_prompt)?.get_ids().to_vec()),
            Self::Numbers => text.trim().split(',').map(|id| Ok(id.trim().parse()?)).collect(),
        }
    }

    fn decode(&self, ids: &[u32]) -> Result<String> {
        match self {
            Self::Known(tokenizer) => tokenizer.decode(ids, true),
            Self::Numbers => Ok(ids.iter().map(|id| format!(",{id}")).collect()),
        }
    }
}

fn main() -> Result<()> {
    let args = args()?;
    let (device, words) = (device()?, Words::load(&args.model)?);
    match &args.perplexity {
        Some(path) => {
            if args.by == By::Own {
                return Err("--by own: candle's own model gives no perplexity".into());
            }
            let ids = words.encode(&std::fs::read_to_string(path)?, false)?;
            println!("{:.6}", perplexity(&load(&args.model, &device, WINDOW)?, &ids)?);
            Ok(())
        }
        None => generate(&words, &args, &device),
    }
}

fn load(path: &Path, device: &Device, room: usize) -> Result<Model> {
    let start = Instant::now();
    let model = Model::load(path, device, room.next_multiple_of(ROOM))?;
    eprintln!("{} on {:?}, loaded in {:.1} s", model.describe(), device.location(), start.elapsed().as_secs_f64());
    Ok(model)
}

/// A token after the other, as `next` says it of the tokens that it has not seen and the number of those that it has; ends where
/// the model does. Each is told to `tell`, with how long it took.
fn follow(
    prompt: &[u32],
    tokens: usize,
    ends: &[u32],
    mut next: impl FnMut(&[u32], usize) -> Result<u32>,
    mut tell: impl FnMut(&[u32], Duration) -> Result<()>,
) -> Result<Vec<u32>> {
    let (mut all, mut seen) = (prompt.to_vec(), 0);
    for _ in 0..tokens {
        let start = Instant::now();
        let made = next(&all[seen..], seen)?;
        let took = start.elapsed();
        seen = all.len();
        if ends.contains(&made) {
            break;
        }
        all.push(made);
        tell(&all[prompt.len()..], took)?;
    }
    Ok(all.split_off(prompt.len()))
}

/// The likeliest token of logits `[vocabulary]`, of equals the first.
fn likeliest(logits: &Tensor) -> Result<u32> {
    Ok(logits.argmax(D::Minus1)?.to_scalar()?)
}

/// The likeliest token each time.
fn greedy<'m>(model: &'m Model, by: By, watch: &mut Watch) -> impl FnMut(&[u32], usize) -> Result<u32> {
    let mut step: Option<Step<'m>> = None;
    move |ids, seen| {
        if let Some(step) = &step {
            return step.next();
        }
        if let (By::Step, [token], true) = (by, ids, seen > 0) {
            return step.insert(Step::new(model, *token, seen)?).next();
        }
        let input = Tensor::new(ids, model.device())?.unsqueeze(0)?;
        let logits = model.forward(&input, Place::Behind(seen), watch)?;
        likeliest(&logits.narrow(1, logits.dim(1)? - 1, 1)?.flatten_all()?)
    }
}

fn generate(words: &Words, args: &Args, device: &Device) -> Result<()> {
    let (prompt, ends) = (words.encode(&args.prompt, true)?, ends(&args.model)?);
    let (mut watch, mut times, mut before) = (Watch::default(), Vec::new(), String::new());
    let tell = |made: &[u32], took: Duration| {
        if made.len() == 1 {
            print!("{}", args.prompt);
        }
        times.push(took);
        let text = words.decode(made)?;
        print!("{}", text.strip_prefix(&before).unwrap_or_default());
        before = text;
        Ok(std::io::stdout().flush()?)
    };
    let made = if args.by == By::Own {
        let mut own = Own::load(&args.model, device)?;
        let next = |ids: &[u32], seen| likeliest(&own.forward(&Tensor::new(ids, device)?.unsqueeze(0)?, seen)?);
        follow(&prompt, args.tokens, &ends, next, tell)?
    } else {
        let model = load(&args.model, device, prompt.len() + args.tokens)?;
        follow(&prompt, args.tokens, &ends, greedy(&model, args.by, &mut watch), tell)?
    };
    println!();
    eprintln!("{} tokens behind {}", made.len(), prompt.len());
    // The first token comes with the prompt, the second with what is made once.
    let mut steps: Vec<_> = times.iter().skip(2).map(Duration::as_secs_f64).collect();
    steps.sort_by(f64::total_cmp);
    if let [_, ..] = steps[..] {
        let (rate, median) = (steps.len() as f64 / steps.iter().sum::<f64>(), steps[steps.len() / 2]);
        eprintln!("{rate:.1} tokens a second, a step {:.1} µs (the median of {})", 1e6 * median, steps.len());
    }
    // On CUDA a layer takes longer than its call.
    if device.is_cpu() && args.by == By::Forward {
        let whole: f64 = times.iter().map(Duration::as_secs_f64).sum();
        eprintln!("{:.0} % of the time in warpsmith's layers", 100.0 * watch.seconds() / whole);
    }
    eprintln!("ids: {made:?}");
    Ok(())
}

/// e to the mean of −ln p of every token that follows another, in windows that share nothing.
fn perplexity(model: &Model, ids: &[u32]) -> Result<f64> {
    let (mut sum, mut count, mut watch) = (0.0, 0usize, Watch::default());
    for window in ids.chunks(WINDOW).filter(|window| window.len() > 1) {
        let pairs = window.len() - 1;
        let input = Tensor::new(window, model.device())?.unsqueeze(0)?;
        let logits = model.forward(&input, Place::Behind(0), &mut watch)?;
        let logits = logits.squeeze(0)?.narrow(0, 0, pairs)?.to_dtype(DType::F32)?;
        let targets = Tensor::new(&window[1..], model.device())?;
        let mean = candle_nn::loss::cross_entropy(&logits, &targets)?.to_scalar::<f32>()?;
        sum += f64::from(mean) * pairs as f64;
        count += pairs;
        eprint!("\r{count} of {} tokens, perplexity {:.4}", ids.len(), (sum / count as f64).exp());
    }
    eprintln!();
    Ok((sum / count.max(1) as f64).exp())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use warpsmith_checkpoint::{Checkpoint, Module, Product};

    use super::*;

    fn fixture(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../warpsmith-checkpoint/tests/fixtures").join(name)
    }

    /// Tokens behind 1, 5, 7, 9.
    fn twenty(folder: &Path, next: impl FnMut(&[u32], usize) -> Result<u32>) -> Vec<u32> {
        follow(&[1, 5, 7, 9], 20, &ends(folder).unwrap(), next, |_, _| Ok(())).unwrap()
    }

    /// What transformers gives on the same dequantised weights, in f32: 20 greedy tokens behind 1, 5, 7, 9 (or fewer, where the
    /// model ends), and the perplexity of some tokens.
    #[test]
    fn models_say_what_transformers_says() {
        const TEXT: [u32; 28] =
            [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 3, 2, 1, 5, 7, 9, 11, 13, 20, 22, 24, 26, 28, 30];
        let cases: [(&str, &[u32], f64); 4] = [
            ("qwen3-moe-modelopt", &[10, 8, 10, 8, 10, 10, 10, 8, 10, 8, 8, 10, 8, 10, 8, 10, 8, 10, 8, 10], 38.26601),
            ("qwen3-moe-ct", &[10, 8, 10, 10, 10, 10, 10, 8, 8, 8, 10, 8, 10, 8, 8, 10, 8, 10, 8, 10], 38.36584),
            ("llama-ct", &[11, 27, 0, 11, 27, 30], 63.81159),
            ("qwen3-modelopt", &[28, 10, 1, 4, 14, 1, 0, 3, 29, 3, 13, 14, 21, 26, 1, 26, 1, 26, 3, 25], 50.64670),
        ];
        for (name, ids, of_text) in cases {
            let folder = fixture(name);
            let model = load(&folder, &Device::Cpu, 28).unwrap();
            for by in [By::Forward, By::Step] {
                assert_eq!(twenty(&folder, greedy(&model, by, &mut Watch::default())), ids, "{name}");
            }
            let found = perplexity(&model, &TEXT).unwrap();
            assert!((found / of_text - 1.0).abs() < 0.005, "{name}: {found}, not {of_text}");
        }
    }

    /// A folder with a checkpoint's values, no longer quantised.
    struct Plain(PathBuf);

    impl Plain {
        fn of(folder: &Path) -> Self {
            let plain = std::env::temp_dir().join(format!("warpsmith-generate-{}", std::process::id()));
            std::fs::create_dir_all(&plain).unwrap();
            std::fs::copy(folder.join("config.json"), plain.join("config.json")).unwrap();
            // SAFETY: nobody changes the fixtures.
            let checkpoint = unsafe { Checkpoint::map(folder).unwrap() };
            let mut tensors = HashMap::new();
            for file in own::safetensors_of(folder).unwrap() {
                let stored = candle_core::safetensors::load(file, &Device::Cpu).unwrap();
                tensors.extend(
                    stored.into_iter().filter(|(name, of)| name.ends_with(".weight") && of.dtype() != DType::U8),
                );
            }
            let mut put = |name: String, of: &Product<'_>| {
                let values = Tensor::from_vec(of.dequantised().unwrap(), (of.rows(), of.columns()), &Device::Cpu);
                tensors.insert(format!("{name}.weight"), values.unwrap());
            };
            for layer in (0..).map(|layer| format!("model.layers.{layer}")) {
                let Ok(Module::Moe(moe)) = checkpoint.module(&format!("{layer}.mlp")) else { break };
                for (at, expert) in moe.experts().iter().enumerate() {
                    let name = |part: &str| format!("{layer}.mlp.experts.{at}.{part}_proj");
                    put(name("gate"), expert.gate().unwrap());
                    put(name("up"), expert.up());
                    put(name("down"), expert.down());
                }
                for part in ["q", "k", "v", "o"].map(|part| format!("{layer}.self_attn.{part}_proj")) {
                    let Module::Linear(product) = checkpoint.module(&part).unwrap() else { panic!("{part}") };
                    put(part, &product);
                }
            }
            candle_core::safetensors::save(&tensors, plain.join("model.safetensors")).unwrap();
            Self(plain)
        }
    }

    impl Drop for Plain {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    /// candle's own model says what ours says, of the same values.
    #[test]
    fn candles_own_model_says_the_same() {
        let folder = fixture("qwen3-moe-modelopt");
        let plain = Plain::of(&folder);
        let mut own = Own::load(&plain.0, &Device::Cpu).unwrap();
        let next = |ids: &[u32], seen| likeliest(&own.forward(&Tensor::new(ids, &Device::Cpu)?.unsqueeze(0)?, seen)?);
        let model = load(&folder, &Device::Cpu, 24).unwrap();
        let ours = twenty(&folder, greedy(&model, By::Step, &mut Watch::default()));
        assert_eq!(twenty(&plain.0, next), ours);
        assert_eq!(ours.len(), 20);
    }
}
