//! What this machine has, what it lacks, and what will work on it.
//!
//! ```text
//! cargo run --release --example doctor
//! cargo run --release --example doctor -- --json
//! ```

#[allow(dead_code)]
mod shared;

use std::process::ExitCode;

use clap::Parser;
use warpsmith::engine::doctor;

use shared::{Result, say};

/// Says what this machine has, what it lacks, and what will work on it. Whatever that is, the status is 0.
#[derive(Debug, Parser)]
#[command(name = "doctor", version)]
struct Args {
    /// As JSON.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    shared::ending::exit(|| run(&Args::parse()))
}

fn run(args: &Args) -> Result<bool> {
    let diagnosis = doctor();
    match args.json {
        true => say!("{}", serde_json::to_string_pretty(&diagnosis)?)?,
        false => say!("{diagnosis}")?,
    }
    Ok(true)
}
