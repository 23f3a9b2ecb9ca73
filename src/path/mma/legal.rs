//! Which architectures, problems and values of the axes the path takes.

use crate::arch::{Arch, ComputeCapability};
use crate::path::axes::{TILE_COLUMNS, TILE_TOKENS_MAX};
use crate::path::refusal::{axis, together};
use crate::path::{Cluster, Epilogue, Fusion, Refusal, Rows, Variant, Warps};
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
    if problem.is_prepared() { Err("weights as they are, not prepared ones") } else { Ok(()) }
}

/// Whether it has a way to fuse two products.
pub(in crate::path) fn check_fusion(fusion: Fusion) -> Result<(), Refusal> {
    match fusion {
        Fusion::PerProduct | Fusion::PingPong => {
            Err(Refusal::Fusion { fusion, expected: "the matrix path mma has two_pass, sequential and interleaved" })
        }
        _ => Ok(()),
    }
}

/// What a tile's tokens are a multiple of: warps share them evenly, all of them up to 64, halves up to 128, quarters up
/// to 256.
fn step(tokens: u32) -> u32 {
    8 * tokens.clamp(1, TILE_TOKENS_MAX).div_ceil(64).next_power_of_two()
}

/// The least height of a tile that holds so many rows, or what would be if tiles could be that high.
pub(in crate::path) fn tokens(rows: u32) -> u32 {
    rows.next_multiple_of(step(rows))
}

/// Whether the values of the axes go together.
pub(in crate::path) fn check_axes(_: &Problem, variant: &Variant) -> Result<(), Refusal> {
    let tile = variant.tile;
    axis(
        "tile tokens",
        tile.tokens,
        tile.tokens > 0 && tile.tokens <= TILE_TOKENS_MAX && tile.tokens.is_multiple_of(step(tile.tokens)),
        "a multiple of 8 up to 64, of 16 up to 128, of 32 up to 256",
    )?;
    axis("tile columns", tile.columns, TILE_COLUMNS.contains(&tile.columns), "32, 64, 128 or 256")?;
    together("the matrix path mma", variant.warps == Warps::Uniform, "uniform warps")?;
    together("the matrix path mma", variant.epilogue == Epilogue::Direct, "epilogue direct")?;
    together("the matrix path mma", variant.cluster == Cluster::None, "no cluster")?;
    together("the matrix path mma", variant.rows == Rows::Weights, "weights as rows of the instruction")?;
    together("the matrix path mma", !variant.persistent, "a block for each tile, not persistent ones")?;
    together("the matrix path mma", !variant.prepass, "tokens that are decoded by the kernel, not by a prepass")
}
