//! A cubin that was asked for, and how it came.

use std::sync::Arc;
use std::time::Duration;

use super::disk::Level;
use super::miss::Miss;
use crate::build::{Built, Cubin};
use crate::spec::Spec;
use crate::spelling::{spelled, words};

/// Where a cubin came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Tier {
    /// It was in memory, or another thread was just making it.
    Memory,
    /// It was in a pack.
    Pack,
    /// It was on disk, where another process may just have put it.
    Disk,
    /// It was in a directory below, which is only read.
    Layer,
    /// NVRTC compiled it now.
    Compiled,
}

words!(Tier, "tier", {
    Memory => "memory", Pack => "pack", Disk => "disk", Layer => "layer", Compiled => "compiled",
});

spelled!(Tier);

/// Machine code with what it was made from, where it came from, and how long that took.
#[derive(Clone, Debug)]
#[must_use]
pub struct Fetched<S = Spec> {
    pub(super) built: Built<S>,
    pub(super) tier: Tier,
    pub(super) miss: Option<Miss>,
    pub(super) elapsed: Duration,
}

impl<S> Fetched<S> {
    /// The machine code with what it was made from: what loading takes.
    pub fn built(&self) -> &Built<S> {
        &self.built
    }

    /// The machine code alone.
    #[must_use]
    pub fn cubin(&self) -> &Arc<Cubin> {
        self.built.cubin()
    }

    /// Where it came from.
    #[must_use]
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Why it had to be compiled, if it was compiled now.
    #[must_use]
    pub fn miss(&self) -> Option<&Miss> {
        self.miss.as_ref()
    }

    /// How long it took to get.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }
}

impl From<Level> for Tier {
    fn from(level: Level) -> Self {
        match level {
            Level::Root => Self::Disk,
            Level::Layer => Self::Layer,
        }
    }
}
