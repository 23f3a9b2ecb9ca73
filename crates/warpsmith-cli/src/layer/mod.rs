//! One layer of a checkpoint on real tokens.

mod device;
mod host;
mod io;
mod routing;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests;

use std::path::PathBuf;
use std::time::Instant;

use clap::ArgGroup;
use serde_json::json;
use warpsmith_checkpoint::{Checkpoint, Module};

use crate::shared::files::{Named, apart};
use crate::shared::place::Place;
use crate::shared::{Result, document, say};
use io::Tokens;

/// Computes one layer of a checkpoint on given tokens: a linear layer, an MLP or a mixture of experts, by its kernels on the
/// GPU, where the first and the last token are checked against the host, or without a GPU all of it on the host.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("routing").args(["logits", "ids"]))]
pub struct Args {
    /// The model's folder: config.json and safetensors files.
    #[arg(long, value_name = "DIR")]
    pub checkpoint: PathBuf,

    /// The layer, such as model.layers.0.mlp or model.layers.0.self_attn.o_proj (one that is not there lists some).
    #[arg(long, value_name = "NAME")]
    pub module: String,

    /// The tokens: a safetensors file with x [tokens, columns], F16 or BF16.
    #[arg(long = "in", value_name = "FILE")]
    pub input: PathBuf,

    /// Where the result goes: a safetensors file with y [tokens, columns], in x's type.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,

    /// Router logits instead of the checkpoint's router: a file with logits [tokens, experts], F32, F16 or BF16.
    #[arg(long, value_name = "FILE")]
    pub logits: Option<PathBuf>,

    /// The experts of each token: a file with ids [tokens, k], I32 or I64; -1 for none.
    #[arg(long, value_name = "FILE", requires = "weights")]
    pub ids: Option<PathBuf>,

    /// Their weights: a file with weights [tokens, k], F32, F16 or BF16.
    #[arg(long, value_name = "FILE", requires = "ids")]
    pub weights: Option<PathBuf>,

    /// Computes on the host, also where there is a GPU.
    #[arg(long)]
    pub host: bool,

    /// Which device.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "host")]
    pub device: usize,
}

/// What is computed.
struct Job<'a> {
    module: &'a Module<'a>,
    tokens: &'a Tokens,
    /// Where experts are chosen.
    routing: Option<routing::Routing>,
}

pub fn run(args: &Args) -> Result<bool> {
    let inputs: [Named<'_>; 4] = [
        ("--in", Some(&args.input)),
        ("--logits", args.logits.as_deref()),
        ("--ids", args.ids.as_deref()),
        ("--weights", args.weights.as_deref()),
    ];
    apart(&inputs, &[("--out", Some(&args.out))])?;

    // SAFETY: whoever runs this changes no file of the checkpoint meanwhile.
    let checkpoint = unsafe { Checkpoint::map(&args.checkpoint)? };
    let module = checkpoint.module(&args.module)?;
    let hidden = checkpoint.config().hidden_size();
    let (kind, [columns, outputs]) = match &module {
        Module::Linear(of) => ("linear", [of.columns(), of.rows()]),
        Module::Mlp(_) => ("mlp", [hidden; 2]),
        _ => ("moe", [hidden; 2]),
    };
    let tokens = io::tokens(&args.input, columns)?;
    let routing = routing::given(args, &module, &tokens)?;
    let job = Job { module: &module, tokens: &tokens, routing };
    let place = if args.host { None } else { Some(Place::find(None, args.device)?) };

    let start = Instant::now();
    let (y, on, worst) = match &place {
        Some(Place::Device(device)) => {
            let (y, worst) = device::run(&job, device)?;
            (y, device.to_string(), Some(worst))
        }
        Some(Place::Host(_, why)) => (host::result(&job)?, format!("the host ({why})"), None),
        None => (host::result(&job)?, "the host".to_owned(), None),
    };
    let seconds = start.elapsed().as_secs_f64();
    let (worst, wrong) = match worst.transpose() {
        Ok(worst) => (worst, None),
        Err(why) => (None, Some(why.to_string())),
    };
    if wrong.is_none() {
        io::write(&args.out, &tokens, outputs, &y)?;
    }
    let (count, format) = (tokens.count, tokens.format);
    say!("{}: {kind}, {count} tokens of {format}, on {on}: y [{count}, {outputs}] in {seconds:.2} s", args.module)?;
    if let Some(why) = &wrong {
        say!("WRONG: {why}; {} is not written", args.out.display())?;
    }
    if let Some(worst) = worst {
        say!("right: the first and the last token are within their bounds, the worst at {worst:.2} of its own")?;
    }
    document(&json!({
        "module": args.module, "kind": kind, "model": checkpoint.config().to_string(), "tokens": count, "columns": outputs,
        "format": format.to_string(), "on": on, "seconds": seconds, "worst_error_in_bounds": worst, "wrong": wrong, "out": args.out,
    }))?;
    Ok(wrong.is_none())
}
