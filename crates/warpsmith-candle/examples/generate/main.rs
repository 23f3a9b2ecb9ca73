//! A model from its checkpoint to text: prompt in, tokens out; or the perplexity of a text.
//!
//! ```text
//! cargo run --release --example generate -- --model DIR --prompt "The capital of France is" --tokens 32
//! cargo run --release --example generate -- --model DIR --perplexity text.txt
//! ```
//!
//! DIR holds config.json, safetensors and tokenizer.json of a Llama, Mistral, Qwen2, Qwen3 or Qwen3-MoE in NVFP4
//! (`warpsmith quantize` makes one); without tokenizer.json, texts are numbers of tokens: 1,2,3. What is not quantised is
//! candle's own. Without a GPU all runs on the CPU.

#![allow(clippy::print_stdout, clippy::print_stderr)]

mod model;

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use candle_core::{D, DType, Device, Tensor};
use tokenizers::Tokenizer;

use model::{Model, Watch};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Tokens of a text that one forward of a perplexity sees.
const WINDOW: usize = 512;

struct Args {
    model: PathBuf,
    prompt: String,
    tokens: usize,
    perplexity: Option<PathBuf>,
}

fn args() -> Result<Args> {
    let mut args = Args { model: PathBuf::new(), prompt: "Once upon a time".to_owned(), tokens: 64, perplexity: None };
    let mut given = std::env::args().skip(1);
    while let Some(option) = given.next() {
        let value = given.next().ok_or_else(|| format!("{option}: a value is missing"))?;
        match option.as_str() {
            "--model" => args.model = value.into(),
            "--prompt" => args.prompt = value,
            "--tokens" => args.tokens = value.parse()?,
            "--perplexity" => args.perplexity = Some(value.into()),
            _ => return Err(format!("{option}: expected --model, --prompt, --tokens or --perplexity").into()),
        }
    }
    if args.model.as_os_str().is_empty() { Err("--model DIR is missing".into()) } else { Ok(args) }
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
    let device = Device::cuda_if_available(0)?;
    let words = Words::load(&args.model)?;
    let start = Instant::now();
    let mut model = Model::load(&args.model, &device)?;
    eprintln!("{} on {:?}, loaded in {:.1} s", model.describe(), device.location(), start.elapsed().as_secs_f64());
    match &args.perplexity {
        Some(path) => {
            let ids = words.encode(&std::fs::read_to_string(path)?, false)?;
            println!("{:.6}", perplexity(&mut model, &ids, &device)?);
            Ok(())
        }
        None => generate(&mut model, &words, &args, &device),
    }
}

/// The likeliest token each time, of equals the first; ends where the model does. Each is told to `tell`.
fn greedy(
    model: &mut Model,
    prompt: &[u32],
    tokens: usize,
    device: &Device,
    watch: &mut Watch,
    mut tell: impl FnMut(&[u32]) -> Result<()>,
) -> Result<Vec<u32>> {
    let (mut all, mut seen) = (prompt.to_vec(), 0);
    for _ in 0..tokens {
        let input = Tensor::new(&all[seen..], device)?.unsqueeze(0)?;
        let logits = model.forward(&input, seen, watch)?;
        seen = all.len();
        let last = logits.narrow(1, logits.dim(1)? - 1, 1)?.flatten_all()?;
        let next = last.argmax(D::Minus1)?.to_scalar::<u32>()?;
        if model.ends(next) {
            break;
        }
        all.push(next);
        tell(&all[prompt.len()..])?;
    }
    Ok(all.split_off(prompt.len()))
}

fn generate(model: &mut Model, words: &Words, args: &Args, device: &Device) -> Result<()> {
    let prompt = words.encode(&args.prompt, true)?;
    print!("{}", args.prompt);
    let (mut watch, start, mut first) = (Watch::default(), Instant::now(), None);
    let mut before = String::new();
    let made = greedy(model, &prompt, args.tokens, device, &mut watch, |made| {
        first.get_or_insert_with(Instant::now);
        let text = words.decode(made)?;
        print!("{}", text.strip_prefix(&before).unwrap_or_default());
        before = text;
        Ok(std::io::stdout().flush()?)
    })?;
    println!();
    // The first token comes with the prompt.
    let (whole, decoding) = (start.elapsed().as_secs_f64(), first.map_or(0.0, |first| first.elapsed().as_secs_f64()));
    let rate = if decoding > 0.0 { made.len().saturating_sub(1) as f64 / decoding } else { 0.0 };
    let (count, behind, share) = (made.len(), prompt.len(), 100.0 * watch.seconds() / whole);
    eprintln!(
        "{count} tokens behind {behind}; {rate:.1} tokens a second; {share:.0} % of the time in warpsmith's layers"
    );
    eprintln!("ids: {made:?}");
    Ok(())
}

/// e to the mean of −ln p of every token that follows another, in windows that share nothing.
fn perplexity(model: &mut Model, ids: &[u32], device: &Device) -> Result<f64> {
    let (mut sum, mut count, mut watch) = (0.0, 0usize, Watch::default());
    for window in ids.chunks(WINDOW).filter(|window| window.len() > 1) {
        model.forget();
        let pairs = window.len() - 1;
        let logits = model.forward(&Tensor::new(window, device)?.unsqueeze(0)?, 0, &mut watch)?;
        let logits = logits.squeeze(0)?.narrow(0, 0, pairs)?.to_dtype(DType::F32)?;
        let targets = Tensor::new(&window[1..], device)?;
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
    use super::*;

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
            let folder =
                Path::new(env!("CARGO_MANIFEST_DIR")).join("../warpsmith-checkpoint/tests/fixtures").join(name);
            let mut model = Model::load(&folder, &Device::Cpu).unwrap();
            let found = greedy(&mut model, &[1, 5, 7, 9], 20, &Device::Cpu, &mut Watch::default(), |_| Ok(())).unwrap();
            assert_eq!(found, ids, "{name}");
            let found = perplexity(&mut model, &TEXT, &Device::Cpu).unwrap();
            assert!((found / of_text - 1.0).abs() < 0.005, "{name}: {found}, not {of_text}");
        }
    }
}
