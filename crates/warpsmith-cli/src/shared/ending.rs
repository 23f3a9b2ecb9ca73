//! How every command begins and ends.

use std::io;
use std::process::ExitCode;

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::{Result, Unprinted, complain, document_of_error, flush};

/// As a shell has it of a program that SIGPIPE ends: 128 and the signal's number.
const UNREAD: u8 = 128 + 13;
/// The command line is none.
pub const USAGE: u8 = 3;
/// A kernel that hangs, or breaks the context, is wrong.
pub const WRONG: u8 = 1;

/// Logs to stderr as `RUST_LOG` says, runs the program, and says how it ended: 0 if everything is right, 1 if not, 2 with a
/// sentence on stderr if something could not be done, 141 without one if nobody reads what it prints.
pub fn exit(run: impl FnOnce() -> Result<bool>) -> ExitCode {
    let asked = std::env::var("RUST_LOG").ok().and_then(|filter| filter.parse::<Targets>().ok());
    let filter = asked.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN));
    // What cannot be logged is not worth a panic.
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).log_internal_errors(false);
    tracing_subscriber::registry().with(lines).with(filter).init();
    let ended = run().and_then(|is_right| Ok(flush().map(|()| is_right)?));
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(WRONG),
        Err(error) if error.downcast_ref().is_some_and(Unprinted::is_unread) => ExitCode::from(UNREAD),
        Err(error) => {
            complain!("error: {error}");
            // Of two troubles the first is told.
            let _ = document_of_error(&*error);
            ExitCode::from(2)
        }
    }
}
