//! What the commands print. `println!` panics where nobody reads; these give an error, which ends the program in
//! [`exit`](super::ending::exit).
//!
//! Prose goes to stdout, or where a document for machines is expected there, to stderr.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use serde::Serialize;

use super::Result;

/// stdout takes no more.
#[derive(Debug)]
pub struct Unprinted(io::Error);

impl Unprinted {
    /// Whether whoever was reading has gone.
    pub fn is_unread(&self) -> bool {
        self.0.kind() == ErrorKind::BrokenPipe
    }
}

impl fmt::Display for Unprinted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stdout cannot be written: {}", self.0)
    }
}

impl std::error::Error for Unprinted {}

/// What stdout is for: prose, a document that is expected, or one that is there.
static STDOUT: AtomicU8 = AtomicU8::new(PROSE);
const PROSE: u8 = 0;
const EXPECTED: u8 = 1;
const WRITTEN: u8 = 2;

/// From now on stdout is for one JSON document.
pub fn expect_document() {
    STDOUT.store(EXPECTED, Relaxed);
}

/// The result for machines: a JSON document on stdout, if one is expected.
pub fn document(value: &impl Serialize) -> Result<()> {
    if STDOUT.compare_exchange(EXPECTED, WRITTEN, Relaxed, Relaxed).is_ok() {
        let text = serde_json::to_string_pretty(value)?;
        write_to(&mut io::stdout().lock(), format_args!("{text}")).map_err(Unprinted)?;
    }
    Ok(())
}

/// In place of the result: why there is none.
pub fn document_of_error(error: &dyn std::error::Error) -> Result<()> {
    document(&serde_json::json!({ "error": error.to_string() }))
}

/// A line of prose: what `say!` is for.
pub fn print(line: fmt::Arguments<'_>) -> std::result::Result<(), Unprinted> {
    if STDOUT.load(Relaxed) != PROSE {
        print_error(line);
        return Ok(());
    }
    write_to(&mut io::stdout().lock(), line).map_err(Unprinted)
}

fn write_to(out: &mut impl Write, line: fmt::Arguments<'_>) -> io::Result<()> {
    out.write_fmt(line).and_then(|()| out.write_all(b"\n"))
}

/// Whatever of the lines is not yet out.
pub fn flush() -> std::result::Result<(), Unprinted> {
    io::stdout().flush().map_err(Unprinted)
}

/// A line to stderr: what `complain!` is for. There is nobody to tell if that fails.
pub fn print_error(line: fmt::Arguments<'_>) {
    let _ = write_to(&mut io::stderr().lock(), line);
}

/// A line of prose, in the words of `format!`, or [`Unprinted`].
macro_rules! say {
    ($($words:tt)*) => { $crate::shared::print(format_args!($($words)*)) };
}
pub(crate) use say;

/// A line to stderr, in the words of `format!`.
macro_rules! complain {
    ($($words:tt)*) => { $crate::shared::print_error(format_args!($($words)*)) };
}
pub(crate) use complain;
