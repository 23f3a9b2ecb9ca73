//! Spec → Source → Built.
//!
//! [`Source`] is the rendered CUDA, [`Toolchain`] the NVRTC that was found (or, on request, installed), [`Cubin`] what
//! the one makes of the other, with its resource use and where it came from. Finding a toolchain only looks at files;
//! the library is opened at the first compile, once, and kept for the life of the process, so a process whose kernels
//! are all cached never pays for it.
//!
//! Only `toolchain::nvrtc` calls NVRTC. Nothing here needs a GPU or a driver.

mod built;
#[cfg(feature = "compile")]
pub(crate) mod compile;
pub(crate) mod cubin;
mod image;
#[cfg(feature = "compile")]
mod measure;
mod names;
pub(crate) mod render;
mod resources;
mod simt;
pub(crate) mod source;
mod target;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(feature = "compile")]
pub(crate) mod toolchain;

pub use built::Built;
#[cfg(feature = "compile")]
pub(crate) use compile::compile;

pub(crate) use cubin::code_options;
pub use cubin::{Cubin, Provenance};
pub(crate) use render::render;
pub use resources::Resources;
pub(crate) use source::{Digest, Header, Source};
#[cfg(feature = "compile")]
pub use toolchain::{Search, Toolchain};
