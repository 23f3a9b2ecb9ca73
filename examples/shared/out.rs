//! What the examples print. `println!` panics where nobody reads; these give an error, which ends the program in
//! [`exit`](super::ending::exit).

use std::fmt;
use std::io::{self, ErrorKind, Write};

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

/// A line to stdout: what `say!` is for.
pub fn print(line: fmt::Arguments<'_>) -> Result<(), Unprinted> {
    let mut stdout = io::stdout().lock();
    stdout.write_fmt(line).and_then(|()| stdout.write_all(b"\n")).map_err(Unprinted)
}

/// Whatever of the lines is not yet out.
pub fn flush() -> Result<(), Unprinted> {
    io::stdout().flush().map_err(Unprinted)
}

/// A line to stderr: what `complain!` is for. There is nobody to tell if that fails.
pub fn print_error(line: fmt::Arguments<'_>) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_fmt(line).and_then(|()| stderr.write_all(b"\n"));
}

/// A line to stdout, in the words of `format!`, or [`Unprinted`].
macro_rules! say {
    ($($words:tt)*) => { $crate::shared::print(format_args!($($words)*)) };
}
pub(crate) use say;

/// A line to stderr, in the words of `format!`.
macro_rules! complain {
    ($($words:tt)*) => { $crate::shared::print_error(format_args!($($words)*)) };
}
pub(crate) use complain;
