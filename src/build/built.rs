//! Machine code with what it was made from: the proof that loading asks for.

use std::fmt;
use std::sync::Arc;

use super::Cubin;
use crate::spec::Spec;

/// A [`Spec`] (or a [`Simt`](crate::simt::Simt)) and the machine code that was rendered and compiled from it, now or before: then it
/// came out of a cache or a pack that it was verified in. Cloning shares the machine code.
#[derive(Clone, PartialEq, Eq)]
pub struct Built<S = Spec> {
    of: S,
    cubin: Arc<Cubin>,
}

impl<S> Built<S> {
    /// Only for machine code of exactly this.
    pub(crate) fn new(of: S, cubin: Arc<Cubin>) -> Self {
        Self { of, cubin }
    }

    /// Machine code that something else has made of `of`: another compiler, a mutant, a file.
    ///
    /// ```compile_fail,E0133
    /// # use std::sync::Arc;
    /// # use warpsmith::build::{Built, Cubin};
    /// # use warpsmith::spec::Spec;
    /// fn load(spec: Spec, cubin: Arc<Cubin>) -> Built {
    ///     Built::unproven(spec, cubin)
    /// }
    /// ```
    ///
    /// # Safety
    /// The kernels of `of` are in it, under their names, with the parameters, block size and shared memory that `of` has,
    /// and read and write nothing but what operands of `of` have room for. A driver is given it as it is.
    #[must_use]
    pub unsafe fn unproven(of: S, cubin: Arc<Cubin>) -> Self {
        Self::new(of, cubin)
    }

    /// What it was made from.
    pub fn of(&self) -> &S {
        &self.of
    }

    /// The machine code, with its resource use and provenance.
    #[must_use]
    pub fn cubin(&self) -> &Arc<Cubin> {
        &self.cubin
    }
}

impl<S> fmt::Debug for Built<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {}", self.cubin.provenance().name(), self.cubin.provenance().target())
    }
}
