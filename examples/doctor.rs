//! What this machine has, what it lacks, and what will work on it.
//!
//! ```text
//! cargo run --release --example doctor
//! cargo run --release --example doctor -- --json
//! ```

#![allow(clippy::print_stdout)]

use clap::Parser;
use warpsmith::engine::doctor;

/// Says what this machine has, what it lacks, and what will work on it. Always ends with status 0.
#[derive(Debug, Parser)]
#[command(name = "doctor", version)]
struct Args {
    /// As JSON.
    #[arg(long)]
    json: bool,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let diagnosis = doctor();
    match Args::parse().json {
        true => println!("{}", serde_json::to_string_pretty(&diagnosis)?),
        false => println!("{diagnosis}"),
    }
    Ok(())
}
