//! Layers of the command line.

use warpsmith::engine::{Manifest, Rows};
use warpsmith::spec::Arch;
use warpsmith_layers::{LayerConfig, named};

use super::Result;

/// Numbers of tokens where none are said.
pub const TOKENS: [u32; 6] = [1, 8, 32, 128, 1024, 8192];

/// A layer by its name or its spelling.
pub fn layer(text: &str) -> std::result::Result<LayerConfig, warpsmith::Error> {
    named(text).map_or_else(|| text.parse(), Ok)
}

/// The products of layers, with the rows that just these numbers of tokens are.
pub fn products(layers: &[LayerConfig], tokens: &[u32], arch: &Arch) -> Result<Manifest> {
    let tokens = if tokens.is_empty() { &TOKENS } else { tokens };
    let mut all = Manifest::new();
    for layer in layers {
        for tokens in tokens {
            for problem in layer.problems(*tokens)? {
                let rows = problem.m_limit().unwrap_or(*tokens);
                all = all.with(&problem.native(arch), &Rows::new(rows..=rows)?);
            }
        }
    }
    Ok(all)
}
