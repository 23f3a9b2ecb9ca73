//! Layers by candle's own operations, on dequantised weights: f32 from the tokens to the result.

mod dense;
mod mlp;
mod moe;

pub(crate) use dense::Dense;
pub(crate) use mlp::Mlp;
pub(crate) use moe::{Moe, Rule};
