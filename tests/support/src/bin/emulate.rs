//! Runs a program with an emulated GPU: `emulate ARCH[:SMS] [eager|late|SEED] -- COMMAND…`. On few SMs persistent blocks have
//! many tiles each.
#![allow(clippy::print_stderr)]

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use warpsmith::spec::{Arch, DeviceFacts};
use warpsmith_testing::emulator::{Schedule, build, shared_folder};

fn main() -> ExitCode {
    let why = run().unwrap_err();
    eprintln!("emulate: {why}");
    ExitCode::FAILURE
}

/// Returns if the program could not be started.
fn run() -> Result<std::convert::Infallible, String> {
    let usage = "usage: emulate ARCH[:SMS] [eager|late|SEED] -- COMMAND…";
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (options, command) = arguments.split_at(arguments.iter().position(|word| word == "--").ok_or(usage)?);
    let [_, program, rest @ ..] = command else { return Err(usage.to_owned()) };
    let (arch, schedule) = match options {
        [arch] => (arch, Schedule::Eager),
        [arch, schedule] => {
            let schedule = match schedule.as_str() {
                "eager" => Schedule::Eager,
                "late" => Schedule::Late,
                seed => Schedule::Seed(seed.parse().map_err(|_| usage)?),
            };
            (arch, schedule)
        }
        _ => return Err(usage.to_owned()),
    };
    let text = |error: warpsmith::Error| error.to_string();
    let (name, sms) = arch.split_once(':').unwrap_or((arch, "0"));
    let preset: Arch = name.parse().map_err(text)?;
    let sms = sms.parse().map_err(|_| usage)?;
    let arch = match sms {
        0 => preset,
        sms => Arch::of_device(&DeviceFacts { sms, ..DeviceFacts::of_preset(&preset) }).map_err(text)?,
    };
    let emulator = build(&shared_folder()?)?;
    let mut command = Command::new(program);
    command.args(rest);
    Err(format!("{program}: {}", emulator.set_up(&mut command, &arch, schedule).exec()))
}
