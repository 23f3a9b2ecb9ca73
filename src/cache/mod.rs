//! Compiled once, kept: memory ▸ disk ▸ compile.
//!
//! [`Forge`] turns a [`Spec`](crate::spec::Spec) into a [`Cubin`](crate::build::Cubin) through the tiers. A [`Key`]
//! covers everything that can change the machine code; a [`Disk`] entry stores its key and a digest of itself and is
//! believed only if both are right. Trouble with the cache is a log line and a compile, never an error.

mod disk;
mod entry;
mod forge;
mod key;
mod memory;

pub use disk::{Disk, DiskStats};
pub use forge::{Forge, ForgeBuilder, ForgeStats, Forged, Tier};
pub use key::Key;
pub use memory::Memory;
