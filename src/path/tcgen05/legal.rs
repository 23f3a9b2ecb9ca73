//! Which architectures, problems and values of the axes the path takes.

use super::geometry::{K_DEPTH, ROWS, geometry};
use crate::arch::{Arch, ComputeCapability};
use crate::format::Format;
use crate::path::refusal::{axis, together};
use crate::path::{Cluster, Epilogue, Fusion, Layout, Refusal, Rows, Variant, Warps};
use crate::problem::Problem;

/// Columns of a tile whose tokens are rows: the scales of its weights begin at even columns of tensor memory.
const WIDE_COLUMNS: [u32; 4] = [64, 128, 192, 256];
/// Columns of the instruction at most.
const WIDTH_MAX: u32 = 256;

/// The compute capability that has its instructions.
pub(in crate::path) fn needs() -> ComputeCapability {
    ComputeCapability { major: 10, minor: 0 }
}

/// Whether an architecture has them: those of the family of sm_100 whose target is their own.
pub(in crate::path) fn is_on(arch: &Arch) -> bool {
    ["sm_100a", "sm_103a"].contains(&arch.target())
}

/// Whether it takes the problem's operands as they are given; if not, what it takes.
pub(in crate::path) fn takes(problem: &Problem) -> Result<(), &'static str> {
    match () {
        () if problem.is_prepared() => Err("weights as they are, not prepared ones"),
        () if problem.a_format() != Format::Nvfp4 || problem.b_format() != Format::Nvfp4 => {
            Err("NVFP4 weights and NVFP4 tokens")
        }
        () => Ok(()),
    }
}

/// Whether it has a way to fuse two products.
pub(in crate::path) fn check_fusion(fusion: Fusion) -> Result<(), Refusal> {
    match fusion {
        Fusion::Single | Fusion::Interleaved | Fusion::TwoPass => Ok(()),
        _ => Err(Refusal::Fusion { fusion, expected: "the matrix path tcgen05 has two_pass and interleaved" }),
    }
}

/// The least height of a tile that holds so many rows, or what would be if tiles could be that high.
pub(in crate::path) fn tokens(rows: u32) -> u32 {
    rows.next_multiple_of(16)
}

/// Whether the values of the axes go together.
pub(in crate::path) fn check_axes(problem: &Problem, variant: &Variant) -> Result<(), Refusal> {
    let Variant { tile, warps, epilogue, split_k, cluster, persistent, prepass, rows, .. } = *variant;
    axis("tile k", tile.k, tile.k == K_DEPTH, "256 on the matrix path tcgen05")?;
    together("the matrix path tcgen05", warps == Warps::Specialised(1), "warps ws1")?;
    together("the matrix path tcgen05", epilogue == Epilogue::Direct, "epilogue direct")?;
    together("the matrix path tcgen05", !prepass, "tokens that are multiplied as they are, without a prepass")?;
    together("the matrix path tcgen05", matches!(cluster, Cluster::None | Cluster::Pair), "no cluster, or a pair")?;
    together("persistent", !persistent || split_k == 1, "whole tiles")?;
    let (pair, step) = (cluster.tile_blocks(), 16 * cluster.tile_blocks());
    match rows {
        Rows::Weights => {
            let expected =
                if pair == 2 { "256 by a pair whose rows are weights" } else { "128 where weights are rows" };
            axis("tile columns", tile.columns, tile.columns == ROWS * pair, expected)?;
            let is_width = (step..=WIDTH_MAX).contains(&tile.tokens) && tile.tokens.is_multiple_of(step);
            axis("tile tokens", tile.tokens, is_width, "a multiple of 16 (of 32 by a pair) up to 256")?;
        }
        Rows::Tokens => {
            let expected = if pair == 2 { "256 by a pair whose rows are tokens" } else { "128 where tokens are rows" };
            axis("tile tokens", tile.tokens, tile.tokens == ROWS * pair, expected)?;
            axis("tile columns", tile.columns, WIDE_COLUMNS.contains(&tile.columns), "64, 128, 192 or 256")?;
        }
    }
    let Layout::Tcgen05(layout) = geometry(problem, variant).layout else { return Ok(()) };
    together("sums and scales", layout.scale_slots > 0, "512 columns of tensor memory: a narrower tile")
}
