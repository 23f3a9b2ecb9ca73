//! Spec → Source → Built.
//!
//! [`Source`] is the rendered CUDA, [`Toolchain`] the NVRTC that was found (or, on request, installed), [`Cubin`] what
//! the one makes of the other, with its resource use and where it came from. Finding a toolchain only looks at files;
//! the library is opened at the first compile, once, and kept for the life of the process, so a process whose kernels
//! are all cached never pays for it.
//!
//! Only `nvrtc` calls NVRTC. Nothing here needs a GPU or a driver.

mod built;
mod cubin;
mod image;
mod install;
mod names;
mod nvrtc;
mod pip;
mod prepare;
mod render;
mod resources;
mod search;
mod shared_object;
mod source;
mod target;
#[cfg(test)]
pub(crate) mod testing;
mod toolchain;
mod version;
mod wheel;

pub use built::Built;
pub(crate) use cubin::{About, code_options};
pub use cubin::{Cubin, Provenance, compile, options, ptx};
pub use prepare::Preparation;
pub use render::render;
pub use resources::Resources;
pub use search::Search;
pub use source::{Digest, Header, Source};
pub use toolchain::Toolchain;
pub use version::Version;
