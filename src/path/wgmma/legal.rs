//! Which architectures, problems and values of the axes the path takes.

use super::geometry::{Sharing, decodes_tokens, tile_columns};
use crate::arch::{Arch, ComputeCapability};
use crate::format::Format;
use crate::path::axes::TILE_TOKENS_MAX;
use crate::path::refusal::{axis, together};
use crate::path::{Cluster, Epilogue, Fusion, Refusal, Rows, Tile, Variant, Warps};
use crate::problem::Problem;

/// m64 tiles of weights in a block at most.
const WEIGHT_TILES_MAX: u32 = 4;
/// Warpgroups that compute at most.
pub(crate) const CONSUMERS_MAX: u32 = 4;
/// Tokens of a tile at most that are gathered where warpgroups decode.
const GATHERED_MAX: u32 = 192;
/// The same of groups for a warpgroup: with more, registers are spilled.
const GROUPED_MAX: u32 = 240;
/// Tokens of a tile at most that are gathered where tiles have groups of warpgroups: with more, products wait for each
/// other, or registers are spilled.
const PING_PONG_GATHERED_MAX: u32 = 40;
/// Warpgroups that only decode.
const DECODERS_MAX: u32 = 2;

/// The compute capability that has its instructions.
pub(in crate::path) fn needs() -> ComputeCapability {
    ComputeCapability { major: 9, minor: 0 }
}

/// Whether an architecture has them. sm_90a is no baseline: later ones do not.
pub(in crate::path) fn is_on(arch: &Arch) -> bool {
    arch.capability() == needs()
}

/// Whether it takes the problem's weights as they are given; if not, what it takes.
pub(in crate::path) fn takes(problem: &Problem) -> Result<(), &'static str> {
    match () {
        () if !problem.is_prepared() => Err("prepared weights"),
        () if problem.is_gathered() && problem.a_format() == Format::Nvfp4 => {
            Err("e4m3, f16 or bf16 tokens where their rows are gathered")
        }
        () if problem.c_format() == Format::Nvfp4 => Err("f16, bf16 or f32 as the format of the result"),
        () => Ok(()),
    }
}

/// Whether it has a way to fuse two products: it has all of them.
pub(in crate::path) fn check_fusion(_: Fusion) -> Result<(), Refusal> {
    Ok(())
}

/// The least height of a tile that holds so many rows, or what would be if tiles could be that high.
pub(in crate::path) fn tokens(rows: u32) -> u32 {
    rows.next_multiple_of(8)
}

/// Whether the values of the axes go together.
pub(in crate::path) fn check_axes(problem: &Problem, variant: &Variant) -> Result<(), Refusal> {
    let Variant { tile, stages, fusion, warps, epilogue, split_k, cluster, persistent, prepass, rows, path: _ } =
        *variant;
    let Tile { tokens, columns, k } = tile;
    let step_of_tokens = tokens > 0 && tokens <= TILE_TOKENS_MAX && tokens.is_multiple_of(8);
    axis("tile tokens", tokens, step_of_tokens, "a multiple of 8 up to 256")?;
    let step = tile_columns(problem);
    let tiles = columns / step;
    let whole = columns.is_multiple_of(step) && (1..=WEIGHT_TILES_MAX).contains(&tiles);
    axis("tile columns", columns, whole, if step == 32 { "32, 64, 96 or 128" } else { "64, 128, 192 or 256" })?;

    let Sharing { tiles_per_part, tile_groups, needed, consumers, .. } = Sharing::new(variant, tiles);
    axis("tile columns", columns, tiles.is_multiple_of(tiles_per_part), "64 or 128 where products are apart")?;
    match warps {
        Warps::Uniform => {
            axis("consumer warpgroups", needed, needed <= CONSUMERS_MAX, "at most 4")?;
            together("uniform", !persistent, "a block for each tile, not persistent ones")?;
        }
        Warps::Specialised(consumers) => {
            let legal = (1..=CONSUMERS_MAX).contains(&consumers) && consumers.is_multiple_of(needed);
            axis("consumer warpgroups", consumers, legal, "1 to 4, a multiple of those that the tile needs")?;
            let takes_more = !matches!(fusion, Fusion::PerProduct | Fusion::PingPong);
            together("per_product", takes_more || consumers == needed, "as many warpgroups as the tile needs")?;
        }
        Warps::Decoding { consumers, decoders } => {
            let legal = (1..=CONSUMERS_MAX).contains(&consumers) && consumers.is_multiple_of(needed);
            axis("consumer warpgroups", consumers, legal, "1 to 4, a multiple of those that the tile needs")?;
            axis("decoder warpgroups", decoders, decoders <= DECODERS_MAX, "1 or 2")?;
            let parts = consumers / needed;
            axis("tile tokens", tokens, tokens.is_multiple_of(8 * parts), "8 for each part of the tokens")?;
            let plain = matches!(fusion, Fusion::Single | Fusion::Interleaved);
            together("decoders", plain, "fusion single or interleaved")?;
            together("decoders", cluster.multicast() == 1, "tokens that a cluster does not share")?;
            together(
                "decoders",
                parts == 1 || cluster == Cluster::None,
                "a warpgroup for each m64 tile where a cluster splits K",
            )?;
            together("decoders", stages > 1, "more than one stage")?;
            // Who gathers them has an address for each.
            let few = !problem.is_gathered() || tokens <= GATHERED_MAX;
            together("decoders", few, "a tile of at most 192 tokens where rows are gathered")?;
            let whole = problem.groups().is_none() || split_k == 1;
            together("decoders", whole, "the whole of K in a block or a cluster where rows are grouped")?;
            together("decoders", problem.compute_format() == Format::E4m3, "e4m3 tokens")?;
            together("decoders", !problem.is_expanded(), "weights that are not expanded")?;
            together(
                "decoders",
                !(problem.has_k_factors() && parts > 1),
                "a warpgroup for each m64 tile where tokens have factors along K",
            )?;
            // Halves of e4m3 tokens, each a whole number of eights.
            let own = tokens / parts;
            let few = problem.groups().is_none() || own <= GROUPED_MAX;
            together("decoders", few, "at most 240 tokens for each warpgroup where rows are grouped")?;
            let halves = own <= 128 || own.is_multiple_of(16);
            together("decoders", halves, "a multiple of 16 tokens for each warpgroup above 128")?;
        }
    }
    // A barrier tells phases apart by parity only: who waits for a stage must know that the one before it in the same place
    // has come. It does where that was its own, and in the plain pipeline, where who loads sees to it.
    let shared = if warps.decoders() > 0 { 1 } else { consumers / needed };
    let plain = matches!(fusion, Fusion::Single | Fusion::Interleaved);
    let ordered = plain && warps != Warps::Uniform && !persistent && cluster.multicast() == 1 && stages > shared;
    axis("stages", stages, stages.is_multiple_of(shared) || ordered, "a multiple of the warpgroups that share K")?;
    let turns = fusion == Fusion::PingPong;
    together("ping_pong", !turns || persistent, "persistent blocks")?;
    together("ping_pong", stages.is_multiple_of(tile_groups), "an even number of stages")?;
    // One warp gathers a group's.
    let few = !(turns && problem.is_gathered()) || tokens <= PING_PONG_GATHERED_MAX;
    together("ping_pong", few, "a tile of at most 40 tokens where rows are gathered")?;
    together("the matrix path wgmma", rows == Rows::Weights, "weights as rows of the instruction")?;
    together("persistent", !persistent || (split_k == 1 && cluster == Cluster::None), "whole tiles and no cluster")?;

    together("partial sums", !variant.needs_finish() || epilogue == Epilogue::Direct, "epilogue direct")?;
    together("prepass", !prepass || problem.a_format() == Format::Nvfp4, "NVFP4 tokens")?;
    let in_kernel = decodes_tokens(problem, variant);
    together(
        "decoding tokens in the kernel",
        !in_kernel || warps != Warps::Uniform,
        "specialised warps, or a prepass",
    )?;
    let rounds = problem.compute_format() == Format::E4m3;
    together("e4m3 tokens", !rounds || k >= 128, "tile k 128 or 256: an instruction's sums are kept for 128 of K")?;
    together("e4m3 tokens", !rounds || cluster.multicast() == 1, "tokens that a cluster does not share")?;
    let k_factors = problem.has_k_factors();
    together("factors along K", !k_factors || warps != Warps::Uniform, "specialised warps, which bring them")?;
    together(
        "factors along K",
        !k_factors || stages > tile_groups * shared,
        "more stages than warpgroups that share K or tiles",
    )?;
    together("gathering rows", !problem.is_gathered() || warps != Warps::Uniform, "specialised warps")?;

    match cluster {
        Cluster::None => Ok(()),
        Cluster::Pair => together("pair", false, "the matrix path tcgen05"),
        Cluster::SplitK(blocks) => {
            axis("cluster blocks", blocks, blocks == 2 || blocks == 4, "2 or 4")?;
            together("dsmem", plain && split_k == 1, "fusion single or interleaved, and no other split of K")?;
            axis("tile tokens", tokens, tokens.is_multiple_of(8 * blocks), "8 for each block of the cluster")
        }
        Cluster::Multicast(blocks) => {
            axis("cluster blocks", blocks, blocks == 2 || blocks == 4, "2 or 4")?;
            together("multicast", plain && split_k == 1, "fusion single or interleaved, and no split of K")?;
            together("multicast", !in_kernel, "tokens in a 16-bit format")?;
            together("multicast", !problem.is_gathered(), "rows that are not gathered")?;
            let column_tiles = problem.columns().div_ceil(columns);
            axis("tiles of columns", column_tiles, column_tiles.is_multiple_of(blocks), "a multiple of the cluster")?;
            let parts = if k == 64 { tokens.is_multiple_of(8 * blocks) } else { (k / 64).is_multiple_of(blocks) };
            together("multicast", parts, "a stage that the cluster's blocks can share")
        }
    }
}
