//! Random input, for as long as one likes: what must be refused is refused, with no panic, no wait and no memory beyond
//! its own size.
//!
//! Each test runs a second, or what `WARPSMITH_FUZZ_SECONDS` says. The seeds begin at `WARPSMITH_FUZZ_SEED` (0), so a
//! run repeats itself; a case that fails names its seed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod elf;
mod entries;
mod packs;
mod spellings;
