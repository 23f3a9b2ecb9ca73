//! Why a kernel is chosen.

mod layer;

use std::path::PathBuf;
use std::str::FromStr;

use clap::value_parser;

use warpsmith::pick::{Explanation, Picker, Table};
use warpsmith::spec::{Arch, Problem};

use warpsmith_layers::LayerConfig;

use crate::shared::layers::{self, TOKENS};
use crate::shared::place::Place;
use crate::shared::{Result, document, say};

/// Rows where none are said.
const ROWS: [u32; 4] = [1, 16, 64, 256];

/// Says which kernel is chosen for a problem and M, and why: what was considered, what was refused by which limit, what
/// was measured or predicted. Of a layer: which kernels each step has, what they are predicted to take, and what the step takes
/// at least. Needs no GPU.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The problem, such as dual_gemm.silu:f16*nvfp4>f16:n4096:k7168:prepared, or a layer, such as qwen3-30b or
    /// mlp.silu:bf16:h4096:i14336.
    #[arg(value_name = "PROBLEM|LAYER")]
    pub what: What,

    /// For a problem: rows of A, of all groups together; several one after the other. Without this 1, 16, 64 and 256.
    #[arg(long, value_delimiter = ',', conflicts_with = "tokens")]
    pub m: Vec<u32>,

    /// For a layer: numbers of tokens; without this 1, 8, 32, 128, 1024 and 8192.
    #[arg(long, value_delimiter = ',', value_parser = value_parser!(u32).range(1..))]
    pub tokens: Vec<u32>,

    /// Takes the decisions of this tuning table, too; of two for the same the newer one counts.
    #[arg(long, value_name = "FILE")]
    pub table: Option<PathBuf>,

    /// On this architecture (a name that is none lists them); without it, on the GPU, or on an H200 where there is none.
    #[arg(long, value_name = "NAME")]
    pub arch: Option<Arch>,

    /// Which GPU.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: usize,
}

/// What is explained.
#[derive(Clone, Copy, Debug)]
// One in a program: a box would gain nothing.
#[allow(clippy::large_enum_variant)]
pub enum What {
    Problem(Problem),
    Layer(LayerConfig),
}

impl FromStr for What {
    type Err = warpsmith::Error;

    fn from_str(text: &str) -> warpsmith::Result<Self> {
        let is_layer = warpsmith_layers::named(text).is_some()
            || ["linear", "mlp", "moe"].contains(&text.split([':', '.']).next().unwrap_or_default());
        if is_layer { layers::layer(text).map(Self::Layer) } else { text.parse().map(Self::Problem) }
    }
}

pub fn run(args: &Args) -> Result<bool> {
    let place = Place::find(args.arch, args.device)?;
    let picker = match &args.table {
        None => place.picker(),
        Some(path) => place.picker_with(&Table::load(path)?.0)?,
    };
    match &args.what {
        What::Problem(_) if !args.tokens.is_empty() => Err("--tokens is for layers; of a problem say --m".into()),
        What::Layer(_) if !args.m.is_empty() => Err("--m is for problems; of a layer say --tokens".into()),
        What::Problem(problem) => of_problem(problem, args, &picker),
        What::Layer(config) => of_layer(config, args, &picker, &place),
    }
}

fn of_problem(problem: &Problem, args: &Args, picker: &Picker) -> Result<bool> {
    let rows = if args.m.is_empty() { &ROWS[..] } else { &args.m };
    let explain = |m: &u32| Ok(picker.explain(problem, *m)?);
    let told: Vec<Explanation> = rows.iter().map(explain).collect::<Result<_>>()?;
    told.iter().try_for_each(|told| say!("{told}\n"))?;
    document(&told)?;
    Ok(true)
}

fn of_layer(config: &LayerConfig, args: &Args, picker: &Picker, place: &Place) -> Result<bool> {
    let tokens = if args.tokens.is_empty() { &TOKENS[..] } else { &args.tokens };
    let tell = |tokens: &u32| layer::Told::new(config, *tokens, picker, &place.arch());
    let told = tokens.iter().map(tell).collect::<Result<Vec<_>>>()?;
    told.iter().try_for_each(layer::Told::show)?;
    document(&told)?;
    Ok(true)
}
