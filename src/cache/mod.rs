//! Compiled once, kept: memory ▸ packs ▸ disk ▸ layers ▸ compile.
//!
//! [`KernelCache`] turns a [`Spec`](crate::spec::Spec) into a [`Cubin`](crate::build::Cubin) through the tiers. A key
//! covers everything that can change the machine code; a [`Disk`] entry stores its key and a digest of itself and is
//! believed only if both are right. Trouble with the cache is a log line and a compile, never an error. A [`Pack`] is
//! one file of kernels, made ahead; its trouble is an error when it is opened, and a log line after that.
//!
//! However many threads and processes ask for a kernel at once, one compiles it. What is promised of that, of eviction
//! and of packs, and what each promise rests on, is in docs/cache.md.

#[cfg(feature = "compile")]
mod compiler;
mod disk;
mod entry;
mod fetched;
mod kernel_cache;
pub(crate) mod key;
pub(crate) mod memory;
pub(crate) mod miss;
#[cfg(not(feature = "compile"))]
mod no_compiler;
pub(crate) mod pack;
mod root;
pub(crate) mod sealing;
mod settings;
mod shard;
mod share;
pub(crate) mod stats;
mod sweep;

#[cfg(feature = "compile")]
use compiler::Compiler;
pub use disk::Disk;
pub use fetched::{Fetched, Tier};
pub use kernel_cache::KernelCache;
pub(crate) use memory::Memory;
#[cfg(not(feature = "compile"))]
use no_compiler::Compiler;
pub use pack::{Pack, PackBuilder};
pub use sealing::Seal;
pub use settings::{DiskBuilder, KernelCacheBuilder};
pub use share::Share;
pub use stats::CacheStats;
