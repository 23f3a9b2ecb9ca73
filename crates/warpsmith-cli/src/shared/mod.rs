//! What the sub-commands share.

mod base;
pub mod chart;
pub mod compile;
pub mod ending;
pub mod files;
pub mod gpu;
pub mod layers;
pub mod list;
mod out;
pub mod page;
pub mod place;
pub mod times;
pub mod wanted;

pub use base::*;
pub use out::*;
