//! Manifests of layers.

use std::path::{Path, PathBuf};

use clap::value_parser;
use warpsmith::engine::{Manifest, Rows};
use warpsmith::format::Format;
use warpsmith::internal::lock::Lock;
use warpsmith::spec::Arch;
use warpsmith_checkpoint::Checkpoint;
use warpsmith_layers::LayerConfig;

use crate::shared::layers::layer;
use crate::shared::{Result, complain, document, say};

/// Writes the manifest of layers: every problem that they launch with its rows, their routers and combiners. That is what
/// warm-up, pack and tune take, and engines that know of no layers. Needs no GPU.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Adds to this manifest, which is made if it is not there; without it, the manifest is printed.
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// The layers: names such as qwen3-30b, or spellings such as linear:bf16:n5120:k2048.
    #[arg(long, required_unless_present = "checkpoint", value_delimiter = ',', value_parser = layer)]
    pub layer: Vec<LayerConfig>,

    /// All layers of a model that are quantised: its folder, with config.json and safetensors files.
    #[arg(long, value_name = "DIR")]
    pub checkpoint: Option<PathBuf>,

    /// The tokens of --checkpoint: f16 or bf16; without it, what the model was made in.
    #[arg(long, requires = "checkpoint")]
    pub format: Option<Format>,

    /// For up to so many tokens.
    #[arg(long, value_name = "N", default_value_t = 8192, value_parser = value_parser!(u32).range(1..))]
    pub tokens: u32,

    /// With weights as kernels of this architecture take them (a name that is none lists them).
    #[arg(long, value_name = "NAME", default_value = "h200")]
    pub arch: Arch,
}

pub fn run(args: &Args) -> Result<bool> {
    let tokens = Rows::new(1..=args.tokens)?;
    let of_model = args.checkpoint.as_ref().map(|path| of_model(path, args.format)).transpose()?.unwrap_or_default();
    // No longer than it takes to read the file and write it.
    let _turn = args.file.as_deref().and_then(Lock::beside);
    let known = args.file.as_ref().filter(|path| path.exists()).map(Manifest::load).transpose()?;
    let mut manifest = known.unwrap_or_default();
    for layer in args.layer.iter().chain(&of_model) {
        manifest = manifest.and(&layer.manifest(&tokens, &args.arch)?);
    }
    match &args.file {
        Some(path) => manifest.save(path)?,
        None => say!("{}", manifest.to_string().trim_end())?,
    }
    document(&manifest)?;
    Ok(true)
}

/// The layers of a model; says which they are, and which modules are none.
fn of_model(path: &Path, format: Option<Format>) -> Result<Vec<LayerConfig>> {
    // SAFETY: whoever runs this changes no file of the checkpoint meanwhile.
    let checkpoint = unsafe { Checkpoint::map(path)? };
    let made_in = checkpoint.config().token_format().filter(|format| matches!(format, Format::F16 | Format::Bf16));
    let layers = checkpoint.layers(format.or(made_in).unwrap_or(Format::Bf16))?;
    for (layer, modules) in &layers.all {
        complain!("{layer}: {} modules, such as {}", modules.len(), modules[0]);
    }
    for (module, why) in &layers.others {
        complain!("left out: {module}: {why}");
    }
    if layers.all.is_empty() {
        return Err(format!("{}: no module is quantised and a layer", path.display()).into());
    }
    Ok(layers.all.into_iter().map(|(layer, _)| layer).collect())
}
