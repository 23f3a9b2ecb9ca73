//! A worker of the tuner, for programs that are not their own: see `warpsmith_tune::WorkerCommand::shipped`.

use std::process::ExitCode;

fn main() -> ExitCode {
    warpsmith_tune::serve()
}
