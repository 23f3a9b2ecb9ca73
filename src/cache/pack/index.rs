//! What is in a pack, and where.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::bytes::Bytes;
use crate::build::{Cubin, Digest};
use crate::cache::key::Recipe;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Index {
    /// Sorted by name and target.
    pub kernels: Vec<PackedKernel>,
    pub tuning: Option<Extent>,
    pub manifest: Option<Extent>,
}

impl Index {
    /// Refuses what no index says of a pack whose entries and sections have these places: parts elsewhere, or more of them
    /// than there is room for, which reading everything would take for ever; and names that a terminal would obey.
    pub fn check(&self, places: Range<u64>) -> Result<(), String> {
        for kernel in &self.kernels {
            let texts =
                [&kernel.name, &kernel.problem, &kernel.variant, &kernel.target, &kernel.toolchain, &kernel.recipe];
            if let Some(text) = texts.into_iter().find(|text| text.contains(char::is_control)) {
                return Err(format!("the index: {text:?} has control characters"));
            }
        }
        let mut room = places.end.saturating_sub(places.start);
        let extents = self.kernels.iter().map(|kernel| &kernel.extent).chain(&self.tuning).chain(&self.manifest);
        for Extent { at, bytes, .. } in extents {
            if *at < places.start || at.checked_add(*bytes).is_none_or(|end| end > places.end) {
                return Err(format!(
                    "the index: {bytes} bytes at {at} are not between {} and {}",
                    places.start, places.end
                ));
            }
            room = room.checked_sub(*bytes).ok_or("the index: parts have more bytes together than there are")?;
        }
        Ok(())
    }
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
    /// Whether this is what the index says that it is.
    pub(super) fn is(&self, cubin: &Cubin) -> bool {
        let from = cubin.provenance();
        let said = [&self.name, &self.problem, &self.variant, &self.target, &self.toolchain];
        said == [from.name(), from.problem(), from.variant(), from.target(), from.toolchain()]
            && self.recipe == Recipe::of(cubin).hash().to_string()
    }

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
