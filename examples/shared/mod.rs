//! What the examples share.

mod base;
pub mod compile;
pub mod gpu;
pub mod place;

pub use base::*;
