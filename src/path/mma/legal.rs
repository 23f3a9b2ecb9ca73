//! Which architectures, problems and values of the axes the path takes.

use crate::arch::{Arch, ComputeCapability};
use crate::format::Format;
use crate::path::{Fusion, Refusal, Variant, mma_sync};
use crate::problem::Problem;

/// The compute capability that has its instructions.
pub(in crate::path) fn needs() -> ComputeCapability {
    ComputeCapability { major: 8, minor: 0 }
}

/// Whether an architecture has them: all later ones do.
pub(in crate::path) fn is_on(arch: &Arch) -> bool {
    arch.capability() >= needs()
}

/// Whether it takes the problem's weights as they are given; if not, what it takes.
pub(in crate::path) fn takes(problem: &Problem) -> Result<(), &'static str> {
    match () {
        () if problem.is_prepared() => Err("weights as they are, not prepared ones"),
        () if problem.a_format() == Format::E4m3 => Err("tokens in nvfp4, f16 or bf16; e4m3 ones need wgmma (sm_90a)"),
        () => Ok(()),
    }
}

/// Whether it has a way to fuse two products.
pub(in crate::path) fn check_fusion(fusion: Fusion) -> Result<(), Refusal> {
    mma_sync::check_fusion(fusion, "the matrix path mma has two_pass, sequential and interleaved")
}

/// The least height of a tile that holds so many rows, or what would be if tiles could be that high.
pub(in crate::path) fn tokens(rows: u32) -> u32 {
    mma_sync::tokens(rows)
}

/// Whether the values of the axes go together.
pub(in crate::path) fn check_axes(_: &Problem, variant: &Variant) -> Result<(), Refusal> {
    mma_sync::check_axes("the matrix path mma", variant)
}
