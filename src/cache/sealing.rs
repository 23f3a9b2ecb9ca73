//! The end of compiling: after a warm-up, a compile is something to hear of, or not to happen at all.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use serde::Serialize;

use super::miss::Miss;
use crate::spelling::{spelled, words};
use crate::{Error, Result};

/// What becomes of a compile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Seal {
    /// It is made.
    #[default]
    Open,
    /// It is made, counted and logged as a warning.
    Warn,
    /// It is refused, which is counted: the caller gets an error ([`Error::is_sealed`]).
    Refuse,
}

words!(Seal, "seal", { Open => "open", Warn => "warn", Refuse => "refuse" });

spelled!(Seal);

/// A seal that many threads look at.
#[derive(Debug, Default)]
pub(super) struct Sealing {
    /// Index into [`Seal::ALL`].
    seal: AtomicU8,
    compiles: AtomicU64,
    refusals: AtomicU64,
}

/// Compiles behind a [`Seal`], since the cache was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SealStats {
    /// The seal now.
    pub seal: Seal,
    /// Compiles behind [`Seal::Warn`].
    pub compiles: u64,
    /// Compiles that [`Seal::Refuse`] has refused.
    pub refusals: u64,
}

impl Sealing {
    pub fn set(&self, seal: Seal) {
        let index = Seal::ALL.iter().position(|known| *known == seal).unwrap_or_default();
        self.seal.store(index as u8, Relaxed);
    }

    fn get(&self) -> Seal {
        Seal::ALL.get(usize::from(self.seal.load(Relaxed))).copied().unwrap_or_default()
    }

    /// Asks whether to compile now.
    ///
    /// # Errors
    /// Sealed.
    pub fn check(&self, kernel: &str, miss: &Miss) -> Result<()> {
        match self.get() {
            Seal::Open => Ok(()),
            Seal::Warn => {
                self.compiles.fetch_add(1, Relaxed);
                tracing::warn!(kernel, %miss, "compiling although sealed");
                Ok(())
            }
            Seal::Refuse => {
                self.refusals.fetch_add(1, Relaxed);
                Err(Error::sealed(format!(
                    "sealed, so it is not compiled; {miss}; remedy: warm up with a manifest that covers it, or seal with \
                     Seal::Warn"
                )))
            }
        }
    }

    pub fn stats(&self) -> SealStats {
        let (compiles, refusals) = (self.compiles.load(Relaxed), self.refusals.load(Relaxed));
        SealStats { seal: self.get(), compiles, refusals }
    }
}

impl fmt::Display for SealStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seal, compiles, refusals } = self;
        write!(f, "seal {seal}, {compiles} compiles behind it, {refusals} refused")
    }
}
