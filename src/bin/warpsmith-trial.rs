//! A worker of the tuner, for programs that are not their own: see `warpsmith::tune::WorkerCommand::shipped`.

use std::process::ExitCode;

fn main() -> ExitCode {
    warpsmith::tune::serve()
}
