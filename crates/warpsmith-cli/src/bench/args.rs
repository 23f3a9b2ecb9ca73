//! The command line.

use std::path::PathBuf;

use clap::value_parser;
use warpsmith::spec::{Arch, Combine, Quantise, Route, Variant};
use warpsmith_layers::LayerConfig;
use warpsmith_tune::Pace;

use crate::shared::layers::layer;
use crate::shared::wanted::Wanted;

/// Checks and then times kernels against what the device can do: medians over replays of a graph, operands not in the
/// L2 cache, launched plainly and as dependent launches. Without arguments it runs the built-in list.
///
/// Random operands as in the public NVFP4 benchmark, α = 1. Without a GPU (or with --arch) it compiles everything.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub wanted: Wanted,

    /// Pins the variant; several, with commas between, are timed on the same operands.
    #[arg(long, value_delimiter = ',')]
    pub variant: Vec<Variant>,

    /// Routers instead of products, such as route.softmax:bf16:e128:k8:renormalised.
    #[arg(long, value_delimiter = ',', group = "whole", conflicts_with_all = ["variant", "problem", "only", "unprepared"])]
    pub route: Vec<Route>,

    /// Combiners instead of products, such as combine:f16>f16:h7168:k8:weighted.
    #[arg(long, value_delimiter = ',', group = "whole", conflicts_with_all = ["variant", "problem", "only", "unprepared"])]
    pub combine: Vec<Combine>,

    /// Quantisers instead of products, such as quantise:bf16:k7168:sf128x4.
    #[arg(long, value_delimiter = ',', group = "whole", conflicts_with_all = ["variant", "problem", "only", "unprepared"])]
    pub quantise: Vec<Quantise>,

    /// Whole layers instead of products: names such as qwen3-30b, with e4m3 or NVFP4 products
    /// qwen3-30b:e4m3 or qwen3-30b:nvfp4, or spellings such as mlp.silu:bf16:h4096:i14336.
    #[arg(long, value_delimiter = ',', value_parser = layer, group = "whole", conflicts_with_all = ["variant", "problem", "only", "unprepared"])]
    pub layer: Vec<LayerConfig>,

    /// How unlike the experts of a layer are: a token's first is the one of rank r as r^(−SKEW); as the layer says, if this is not said.
    #[arg(long, requires = "layer")]
    pub skew: Option<f64>,

    /// Layers take the decisions of this tuning table, too; of two for the same the newer one counts.
    #[arg(long, requires = "layer", value_name = "FILE")]
    pub table: Option<PathBuf>,

    /// Times products and layers under steady load, as long prompts are, instead of in short bursts.
    #[arg(long, conflicts_with_all = ["route", "combine", "quantise"])]
    pub steady: bool,

    /// Numbers of tokens for layers, routers, combiners and quantisers.
    #[arg(long, value_delimiter = ',', requires = "whole", value_parser = value_parser!(u32).range(1..=1 << 20))]
    pub tokens: Vec<u32>,

    /// Compiles for this architecture and launches nothing (a name that is none lists them).
    #[arg(long, value_name = "NAME")]
    pub arch: Option<Arch>,

    /// Which GPU.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub device: usize,
}

impl Args {
    pub fn pace(&self) -> Pace {
        if self.steady { Pace::STEADY } else { Pace::NORMAL }
    }

    /// Said beside the times.
    pub fn load(&self) -> &'static str {
        if self.steady { "; under steady load" } else { "" }
    }
}
