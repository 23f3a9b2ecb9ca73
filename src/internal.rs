//! What the other crates of this workspace need of this one. **No stability:** it changes with any release, and nobody
//! else should use it.

use std::borrow::Cow;
use std::sync::Arc;

use cudarc::driver::sys::CUevent;
use cudarc::driver::{CudaStream, DriverError};

use crate::build::{Cubin, Digest};
use crate::error::{Error, Result};
use crate::run::{self, Device};
use crate::spec::{MatrixPath, Problem};

pub use crate::build::cubin::About;
#[cfg(feature = "compile")]
pub use crate::child::{end, has_ended, within};
pub use crate::path::Axes;

/// Variables that the library reads.
pub mod environment {
    pub use crate::environment::{Environment, PATH, TRIAL_WORKER};
}

/// Makes errors of each class.
pub trait Raise: Sized {
    /// A spelling that is not in the grammar.
    fn parse(message: impl Into<Cow<'static, str>>) -> Self;
    /// What there is not.
    fn unsupported(message: impl Into<Cow<'static, str>>) -> Self;
    /// A shared library that is not there; the message ends with the remedy.
    fn missing_library(message: impl Into<Cow<'static, str>>) -> Self;
    /// An operand that does not fit.
    fn operand(message: impl Into<Cow<'static, str>>) -> Self;
    /// Host data that does not have the form it must have.
    fn data(message: impl Into<Cow<'static, str>>) -> Self;
    /// The CUDA driver refused a call.
    fn driver(message: impl Into<Cow<'static, str>>) -> Self;
    /// A promise of this workspace that did not hold.
    fn internal(message: impl Into<Cow<'static, str>>) -> Self;
    /// Adds what caused it.
    #[must_use]
    fn with_source(self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self;
}

impl Raise for Error {
    fn parse(message: impl Into<Cow<'static, str>>) -> Self {
        Error::parse(message)
    }

    fn unsupported(message: impl Into<Cow<'static, str>>) -> Self {
        Error::unsupported(message)
    }

    fn missing_library(message: impl Into<Cow<'static, str>>) -> Self {
        Error::missing_library(message)
    }

    fn operand(message: impl Into<Cow<'static, str>>) -> Self {
        Error::operand(message)
    }

    fn data(message: impl Into<Cow<'static, str>>) -> Self {
        Error::data(message)
    }

    fn driver(message: impl Into<Cow<'static, str>>) -> Self {
        Error::driver(message)
    }

    fn internal(message: impl Into<Cow<'static, str>>) -> Self {
        Error::internal(message)
    }

    fn with_source(self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.with_source(source)
    }
}

/// Wraps what the driver said.
pub fn refused(doing: impl std::fmt::Display, error: DriverError) -> Error {
    run::refused(doing, error)
}

/// The time between two events.
///
/// # Safety
/// Both are alive.
///
/// # Errors
/// Driver, if it refuses.
pub unsafe fn elapsed_ms(start: CUevent, end: CUevent) -> Result<f32> {
    // SAFETY: the caller's promise.
    unsafe { run::elapsed_ms(start, end) }
}

/// A device of one's own with its only stream, which can be captured: [`Device::open`] without cudarc's event
/// tracking. Whoever calls this puts all work on this device into this stream.
///
/// # Errors
/// Those of [`Device::open`]; driver, if there is no stream.
pub fn open_for_one_stream(ordinal: usize) -> Result<(Device, Arc<CudaStream>)> {
    Device::open_for_one_stream(ordinal)
}

/// The axes of a matrix path for a problem.
#[must_use]
pub fn axes(path: MatrixPath, problem: &Problem) -> Axes {
    path.axes(problem)
}

/// The problem without what is no part of a kernel.
#[must_use]
pub fn for_kernel(problem: &Problem) -> Problem {
    problem.for_kernel()
}

/// The digest of some bytes.
#[must_use]
pub fn digest(bytes: &[u8]) -> Digest {
    Digest::of(bytes)
}

/// What is known of machine code besides its bytes.
#[must_use]
pub fn about(cubin: &Cubin) -> &About {
    cubin.about()
}

/// Machine code that was compiled before.
///
/// # Errors
/// Data, if it is not what it is said to be.
pub fn cubin(about: About, image: Vec<u8>) -> Result<Cubin> {
    Cubin::from_parts(about, image)
}
