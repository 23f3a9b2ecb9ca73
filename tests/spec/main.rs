//! Spellings and legality: what is written reads back, and what is refused says which limit, with both numbers.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

mod extremes;
mod limits;
mod near;
mod refusals;
mod space;
mod spellings;

use warpsmith::spec::{Activation, Problem};

fn dual() -> Problem {
    Problem::dual_gemm(Activation::Silu).n(4096).k(7168)
}
