//! What the examples share.

mod base;
pub mod compile;
pub mod ending;
pub mod files;
pub mod gpu;
mod out;
pub mod place;

pub use base::*;
pub use out::*;
