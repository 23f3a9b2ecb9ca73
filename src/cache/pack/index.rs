//! What is in a pack, and where.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::bytes::Bytes;
use crate::build::Digest;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Index {
    /// Sorted by name and target.
    pub kernels: Vec<PackedKernel>,
    pub tuning: Option<Extent>,
    pub manifest: Option<Extent>,
}

/// A range of the pack and the BLAKE3 digest of what is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Extent {
    at: u64,
    bytes: u64,
    digest: String,
}

impl Extent {
    /// That of `bytes`, which are at `at`.
    pub fn of(bytes: &[u8], at: u64) -> Self {
        Self { at, bytes: bytes.len() as u64, digest: Digest::of(bytes).to_string() }
    }

    /// The bytes, if they are those that were packed; else the reason.
    pub fn verified(&self, pack: &Bytes) -> Result<Cow<'static, [u8]>, String> {
        let bytes = pack.read(self.at, self.bytes)?;
        if Digest::of(&bytes).to_string() != self.digest {
            return Err(format!("damaged: {} bytes at {} do not have the index's digest", self.bytes, self.at));
        }
        Ok(bytes)
    }
}

/// A kernel of a [`Pack`](super::Pack), as its index has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedKernel {
    pub(super) name: String,
    pub(super) problem: String,
    pub(super) variant: String,
    pub(super) target: String,
    pub(super) toolchain: String,
    pub(super) recipe: String,
    #[serde(flatten)]
    pub(super) extent: Extent,
}

impl PackedKernel {
    /// The name of its source.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The problem's spelling; empty for kernels that prepare weights.
    #[must_use]
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// The variant's spelling; empty for kernels that prepare weights.
    #[must_use]
    pub fn variant(&self) -> &str {
        &self.variant
    }

    /// The compile target, e.g. `sm_90a`.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The identity of the compiler that made it.
    #[must_use]
    pub fn toolchain(&self) -> &str {
        &self.toolchain
    }

    /// The hash of its recipe, in hexadecimal: what it is found by.
    #[must_use]
    pub fn recipe(&self) -> &str {
        &self.recipe
    }

    /// The size of its entry.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.extent.bytes
    }
}

impl fmt::Display for PackedKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, target, toolchain, extent, .. } = self;
        write!(f, "{name} for {target} by {toolchain}, {} B", extent.bytes)
    }
}
