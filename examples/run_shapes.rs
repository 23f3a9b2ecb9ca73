//! The main job: a suite of shapes, each built, checked against the oracle element by element, and only then timed.
//!
//! ```text
//! cargo run --release --example run_shapes
//! cargo run --release --example run_shapes -- --problem 'gemm:f16*nvfp4>f16:n4096:k4096' --m 64 --variants all
//! cargo run --release --example run_shapes -- --operands in.safetensors --out out.safetensors
//! ```
//!
//! Without a GPU it compiles for an H200 and computes results on the host. It is the sub-command `run` of the command
//! `warpsmith`; `examples/first.rs` is the same in a page of calls to copy from.

use std::process::ExitCode;

fn main() -> ExitCode {
    warpsmith_cli::run_shapes()
}
