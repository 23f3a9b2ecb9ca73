//! One opaque error for the whole crate.
//!
//! Callers ask it questions ([`Error::is_unsupported`], [`Error::is_missing_library`], …) instead of matching on
//! variants, so that a new cause is never a breaking change. Its text always names the value that was wrong and,
//! where there is one, the limit or the remedy.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong: a class (see the predicates), one sentence, and the context it happened in.
pub struct Error(Box<Inner>);

struct Inner {
    kind: Kind,
    message: Cow<'static, str>,
    context: Vec<String>,
    compile_log: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync + 'static>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Parse,
    Unsupported,
    MissingLibrary,
    Compile,
    Operand,
    Data,
    Untrusted,
    Driver,
    Sealed,
    NotLoaded,
    Internal,
}

impl Error {
    fn new(kind: Kind, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner { kind, message: message.into(), context: Vec::new(), compile_log: None, source: None }))
    }

    /// A spelling that is not in the grammar.
    pub(crate) fn parse(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Parse, message)
    }

    /// A combination that no kernel exists for; the message names the limit and both numbers.
    pub(crate) fn unsupported(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Unsupported, message)
    }

    /// A shared library (driver, NVRTC, its builtins) that is not there; the message ends with the remedy.
    pub(crate) fn missing_library(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::MissingLibrary, message)
    }

    /// NVRTC refused the source; `log` is what it said.
    #[cfg(feature = "compile")]
    pub(crate) fn compile(message: impl Into<Cow<'static, str>>, log: impl Into<String>) -> Self {
        let mut error = Self::new(Kind::Compile, message);
        error.0.compile_log = Some(log.into());
        error
    }

    /// An operand whose size, alignment, type or device does not fit the kernel.
    pub(crate) fn operand(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Operand, message)
    }

    /// Host data that does not have the form it must have (a length, a NaN scale).
    pub(crate) fn data(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Data, message)
    }

    /// A file that is not signed by the key that it must be signed by.
    pub(crate) fn untrusted(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Untrusted, message)
    }

    /// The CUDA driver refused a call.
    pub(crate) fn driver(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Driver, message)
    }

    /// A compile after the end of compiling; the message ends with the remedy.
    pub(crate) fn sealed(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Sealed, message)
    }

    /// A kernel that is not loaded, where it must not be waited for.
    pub(crate) fn not_loaded(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::NotLoaded, message)
    }

    /// A promise of this crate that did not hold (a template without a value, say). Worth a bug report.
    pub(crate) fn internal(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Internal, message)
    }

    /// Adds what caused it.
    pub(crate) fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Says what was being done; the outermost context is printed first.
    #[must_use]
    pub fn context(mut self, doing: impl Into<String>) -> Self {
        self.0.context.push(doing.into());
        self
    }

    /// The text could not be parsed as a problem, variant, format or architecture.
    #[must_use]
    pub fn is_parse(&self) -> bool {
        self.0.kind == Kind::Parse
    }

    /// The combination of problem, variant and architecture is not legal. Nothing was rendered or launched.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        self.0.kind == Kind::Unsupported
    }

    /// The driver, NVRTC or its builtins library was not found; the text says where it was looked for and the remedy.
    #[must_use]
    pub fn is_missing_library(&self) -> bool {
        self.0.kind == Kind::MissingLibrary
    }

    /// NVRTC refused the source; see [`Error::compile_log`].
    #[must_use]
    pub fn is_compile(&self) -> bool {
        self.0.kind == Kind::Compile
    }

    /// An operand does not fit the kernel. Nothing was launched.
    #[must_use]
    pub fn is_operand(&self) -> bool {
        self.0.kind == Kind::Operand
    }

    /// A file is not signed by the key that it must be signed by. Nothing of it was used.
    #[must_use]
    pub fn is_untrusted(&self) -> bool {
        self.0.kind == Kind::Untrusted
    }

    /// Host data, or a file's contents, do not have the form they must have.
    #[must_use]
    pub fn is_data(&self) -> bool {
        self.0.kind == Kind::Data
    }

    /// The CUDA driver refused a call.
    #[must_use]
    pub fn is_driver(&self) -> bool {
        self.0.kind == Kind::Driver
    }

    /// It would have taken a compile, and compiling is over: see [`Seal`](crate::cache::Seal). The text ends with the
    /// remedy.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.0.kind == Kind::Sealed
    }

    /// The kernel is not loaded, nothing can stand in for it, and the caller does not wait: see
    /// [`OnMiss`](crate::engine::OnMiss). Where it is made meanwhile, the text says so, and a later call finds it.
    #[must_use]
    pub fn is_not_loaded(&self) -> bool {
        self.0.kind == Kind::NotLoaded
    }

    /// What the compiler said, if it was the compiler.
    #[must_use]
    pub fn compile_log(&self) -> Option<&str> {
        self.0.compile_log.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for doing in self.0.context.iter().rev() {
            write!(f, "{doing}: ")?;
        }
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)?;
        if let Some(log) = &self.0.compile_log {
            write!(f, "\n{log}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// What cannot fail is no error.
impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// For those who call the driver beside this crate.
impl From<cudarc::driver::DriverError> for Error {
    fn from(error: cudarc::driver::DriverError) -> Self {
        Self::driver(format!("the CUDA driver: {:?}", error.0)).with_source(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_is_printed_outermost_first() {
        let error = Error::operand("c has 8 elements, 16 are needed").context("gemm").context("launch");
        assert_eq!(error.to_string(), "launch: gemm: c has 8 elements, 16 are needed");
        assert!(error.is_operand() && !error.is_driver());
    }

    #[test]
    fn a_compile_error_carries_its_log() {
        let error = Error::compile("NVRTC refused gemm.cu", "gemm.cu(2): error: expected a `;`");
        assert!(error.is_compile());
        assert_eq!(error.compile_log(), Some("gemm.cu(2): error: expected a `;`"));
        assert!(format!("{error:?}").contains("expected a `;`"));
    }
}
