//! What this machine has, what it lacks, and what will work on it.

use warpsmith::internal::engine::doctor;

use crate::shared::{Result, document, say};

/// Says what this machine has, what it lacks, and what will work on it. Whatever that is, the status is 0.
#[derive(Debug, clap::Args)]
pub struct Args {}

pub fn run(_: &Args) -> Result<bool> {
    let diagnosis = doctor();
    say!("{diagnosis}")?;
    document(&diagnosis)?;
    Ok(true)
}
