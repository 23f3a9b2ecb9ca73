//! Manifests of layers.

use std::path::PathBuf;

use clap::value_parser;
use warpsmith::engine::{Manifest, Rows};
use warpsmith::spec::Arch;
use warpsmith_layers::LayerConfig;

use crate::shared::layers::layer;
use crate::shared::{Result, document, say};

/// Writes the manifest of layers: every problem that they launch with its rows, their routers and combiners. That is what
/// warm-up, pack and tune take, and engines that know of no layers. Needs no GPU.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Adds to this manifest, which is made if it is not there; without it, the manifest is printed.
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// The layers: names such as qwen3-30b, or spellings such as linear:bf16:n5120:k2048.
    #[arg(long, required = true, value_delimiter = ',', value_parser = layer)]
    pub layer: Vec<LayerConfig>,

    /// For up to so many tokens.
    #[arg(long, value_name = "N", default_value_t = 8192, value_parser = value_parser!(u32).range(1..))]
    pub tokens: u32,

    /// With weights as kernels of this architecture take them (a name that is none lists them).
    #[arg(long, value_name = "NAME", default_value = "h200")]
    pub arch: Arch,
}

pub fn run(args: &Args) -> Result<bool> {
    let tokens = Rows::new(1..=args.tokens)?;
    let known = args.file.as_ref().filter(|path| path.exists()).map(Manifest::load).transpose()?;
    let mut manifest = known.unwrap_or_default();
    for layer in &args.layer {
        manifest = manifest.and(&layer.manifest(&tokens, &args.arch)?);
    }
    match &args.file {
        Some(path) => manifest.save(path)?,
        None => say!("{}", manifest.to_string().trim_end())?,
    }
    document(&manifest)?;
    Ok(true)
}
