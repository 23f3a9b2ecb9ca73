//! Which combinations are legal: the one place that decides it.

use super::depth::STAGES_MAX;
use super::geometry::{Geometry, Sharing, decodes_tokens, needs_finish, tile_columns};
use super::{Arch, Cluster, Epilogue, Fusion, MatrixPath, Operation, Problem, Refusal, Tile, Variant, Warps};
use crate::format::Format;

/// Checks problem, variant and architecture together and derives the geometry.
pub(super) fn check(problem: &Problem, variant: &Variant, arch: &Arch) -> Result<Geometry, Refusal> {
    check_problem(problem)?;
    check_path(problem, variant.path, arch)?;
    check_axes(problem, variant)?;
    let geometry = Geometry::new(problem, variant, arch);
    check_resources(&geometry, arch)?;
    check_split(problem, variant)?;
    Ok(geometry)
}

/// Checks what has nothing to do with the size of memories.
pub(super) fn check_axes(problem: &Problem, variant: &Variant) -> Result<(), Refusal> {
    check_fusion(problem.operation(), variant)?;
    check_numbers(variant)?;
    match variant.path {
        MatrixPath::Mma => check_mma(variant),
        MatrixPath::Wgmma => check_wgmma(problem, variant),
    }
}

fn extent(what: &'static str, value: u32, step: u32, max: u32) -> Result<(), Refusal> {
    if value == 0 || value > max || !value.is_multiple_of(step) {
        return Err(Refusal::Extent { what, value, step, max });
    }
    Ok(())
}

/// M: rows of all groups together.
pub(super) fn check_rows(m: u32) -> Result<(), Refusal> {
    extent("M", m, 1, Problem::M_MAX)
}

pub(super) fn check_problem(problem: &Problem) -> Result<(), Refusal> {
    extent("N", problem.columns(), Problem::N_STEP, Problem::EXTENT_MAX)?;
    extent("K", problem.depth(), Problem::K_STEP, Problem::EXTENT_MAX)?;
    extent("groups", problem.groups().unwrap_or(1), 1, Problem::GROUPS_MAX)?;
    check_rows(problem.m_limit().unwrap_or(1))?;

    let (a, b, c) = (problem.a_format(), problem.b_format(), problem.c_format());
    if a == Format::F32 {
        return Err(Refusal::Format { operand: "A", format: a, expected: "nvfp4, f16 or bf16" });
    }
    if b == Format::F32 {
        return Err(Refusal::Format { operand: "B", format: b, expected: "nvfp4, f16 or bf16" });
    }
    if a != b && a != Format::Nvfp4 && b != Format::Nvfp4 {
        return Err(Refusal::Format { operand: "B", format: b, expected: "nvfp4 or the format of A" });
    }
    if problem.is_prepared() && b != Format::Nvfp4 {
        return Err(Refusal::Format { operand: "B", format: b, expected: "nvfp4 where weights are prepared" });
    }
    if c == Format::Nvfp4 {
        return Err(Refusal::Format { operand: "C", format: c, expected: "f16, bf16 or f32" });
    }
    if let Some(format @ Format::Nvfp4) = problem.bias_format() {
        return Err(Refusal::Format { operand: "bias", format, expected: "f16, bf16 or f32" });
    }
    Ok(())
}

fn check_path(problem: &Problem, path: MatrixPath, arch: &Arch) -> Result<(), Refusal> {
    if !path.is_on(arch) {
        return Err(Refusal::Capability { path, needs: path.needs(), has: arch.capability() });
    }
    match (path, problem.is_prepared()) {
        (MatrixPath::Mma, true) => Err(Refusal::Weights { path, expected: "weights as they are, not prepared ones" }),
        (MatrixPath::Wgmma, false) => Err(Refusal::Weights { path, expected: "prepared weights" }),
        _ => Ok(()),
    }
}

pub(super) fn check_fusion(operation: Operation, variant: &Variant) -> Result<(), Refusal> {
    let (fusion, path) = (variant.fusion, variant.path);
    match (operation, fusion, path) {
        (Operation::Gemm, Fusion::Single, _) => Ok(()),
        (Operation::Gemm, _, _) => {
            Err(Refusal::Fusion { fusion, expected: "gemm has one product, so its fusion is single" })
        }
        (Operation::DualGemm(_), Fusion::Single, _) => Err(Refusal::Fusion {
            fusion,
            expected: "dual_gemm has two products: two_pass, sequential, interleaved, per_product or ping_pong",
        }),
        (Operation::DualGemm(_), Fusion::PerProduct | Fusion::PingPong, MatrixPath::Mma) => {
            Err(Refusal::Fusion { fusion, expected: "the matrix path mma has two_pass, sequential and interleaved" })
        }
        (Operation::DualGemm(_), _, _) => Ok(()),
    }
}

/// Values of the numeric axes.
pub(super) const TILE_COLUMNS: [u32; 4] = [32, 64, 128, 256];
pub(super) const TILE_K: [u32; 3] = [64, 128, 256];
const TILE_TOKENS_MAX: u32 = 256;
const SPLITS_MAX: u32 = 64;
/// m64 tiles of weights in a block at most, and warpgroups that compute.
const WEIGHT_TILES_MAX: u32 = 4;
pub(crate) const CONSUMERS_MAX: u32 = 4;

fn axis(what: &'static str, value: u32, legal: bool, expected: &'static str) -> Result<(), Refusal> {
    if legal { Ok(()) } else { Err(Refusal::Axis { what, value, expected }) }
}

fn together(what: &'static str, legal: bool, expected: &'static str) -> Result<(), Refusal> {
    if legal { Ok(()) } else { Err(Refusal::Together { what, expected }) }
}

fn check_numbers(variant: &Variant) -> Result<(), Refusal> {
    axis("tile k", variant.tile.k, TILE_K.contains(&variant.tile.k), "64, 128 or 256")?;
    axis("stages", variant.stages, (1..=STAGES_MAX).contains(&variant.stages), "1 to 32")?;
    axis("split-K", variant.split_k, (1..=SPLITS_MAX).contains(&variant.split_k), "1 to 64")
}

/// What a tile's tokens are a multiple of on the path `mma`: warps share them evenly, all of them up to 64, halves up to
/// 128, quarters up to 256.
fn mma_step(tokens: u32) -> u32 {
    8 * tokens.clamp(1, TILE_TOKENS_MAX).div_ceil(64).next_power_of_two()
}

/// The least height of a tile that holds so many rows, or what would be if tiles could be that high.
pub(crate) fn legal_tokens(problem: &Problem, rows: u32) -> u32 {
    rows.next_multiple_of(if problem.is_prepared() { 8 } else { mma_step(rows) })
}

fn check_mma(variant: &Variant) -> Result<(), Refusal> {
    let tile = variant.tile;
    axis(
        "tile tokens",
        tile.tokens,
        tile.tokens > 0 && tile.tokens <= TILE_TOKENS_MAX && tile.tokens.is_multiple_of(mma_step(tile.tokens)),
        "a multiple of 8 up to 64, of 16 up to 128, of 32 up to 256",
    )?;
    axis("tile columns", tile.columns, TILE_COLUMNS.contains(&tile.columns), "32, 64, 128 or 256")?;
    together("the matrix path mma", variant.warps == Warps::Uniform, "uniform warps")?;
    together("the matrix path mma", variant.epilogue == Epilogue::Direct, "epilogue direct")?;
    together("the matrix path mma", variant.cluster == Cluster::None, "no cluster")?;
    together("the matrix path mma", !variant.persistent, "a block for each tile, not persistent ones")?;
    together("the matrix path mma", !variant.prepass, "tokens that are decoded by the kernel, not by a prepass")
}

fn check_wgmma(problem: &Problem, variant: &Variant) -> Result<(), Refusal> {
    let Variant { tile, stages, fusion, warps, epilogue, split_k, cluster, persistent, prepass, path: _ } = *variant;
    let Tile { tokens, columns, k } = tile;
    let step_of_tokens = tokens > 0 && tokens <= TILE_TOKENS_MAX && tokens.is_multiple_of(8);
    axis("tile tokens", tokens, step_of_tokens, "a multiple of 8 up to 256")?;
    let step = tile_columns(problem);
    let tiles = columns / step;
    let whole = columns.is_multiple_of(step) && (1..=WEIGHT_TILES_MAX).contains(&tiles);
    axis("tile columns", columns, whole, if step == 32 { "32, 64, 96 or 128" } else { "64, 128, 192 or 256" })?;

    let Sharing { tiles_per_part, needed, consumers, .. } = Sharing::new(variant, tiles);
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
    }
    // A barrier tells phases apart by parity only: who waits for a stage must know that the one before it in the same place
    // has come. It does where that was its own, and in the plain pipeline, where who loads sees to it.
    let shared = consumers / needed;
    let plain = matches!(fusion, Fusion::Single | Fusion::Interleaved);
    let ordered = plain && warps != Warps::Uniform && !persistent && cluster.multicast() == 1 && stages > shared;
    axis("stages", stages, stages.is_multiple_of(shared) || ordered, "a multiple of the warpgroups that share K")?;
    together("ping_pong", fusion != Fusion::PingPong || persistent, "persistent blocks")?;
    together("persistent", !persistent || (split_k == 1 && cluster == Cluster::None), "whole tiles and no cluster")?;

    together("partial sums", !needs_finish(variant) || epilogue == Epilogue::Direct, "epilogue direct")?;
    together("prepass", !prepass || problem.a_format() == Format::Nvfp4, "NVFP4 tokens")?;
    let in_kernel = decodes_tokens(problem, variant);
    together(
        "decoding tokens in the kernel",
        !in_kernel || warps != Warps::Uniform,
        "specialised warps, or a prepass",
    )?;

    match cluster {
        Cluster::None => Ok(()),
        Cluster::SplitK(blocks) => {
            axis("cluster blocks", blocks, blocks == 2 || blocks == 4, "2 or 4")?;
            together("dsmem", plain && split_k == 1, "fusion single or interleaved, and no other split of K")?;
            axis("tile tokens", tokens, tokens.is_multiple_of(8 * blocks), "8 for each block of the cluster")
        }
        Cluster::Multicast(blocks) => {
            axis("cluster blocks", blocks, blocks == 2 || blocks == 4, "2 or 4")?;
            together("multicast", plain && split_k == 1, "fusion single or interleaved, and no split of K")?;
            together("multicast", !in_kernel, "tokens in a 16-bit format")?;
            let column_tiles = problem.columns().div_ceil(columns);
            axis("tiles of columns", column_tiles, column_tiles.is_multiple_of(blocks), "a multiple of the cluster")?;
            let parts = if k == 64 { tokens.is_multiple_of(8 * blocks) } else { (k / 64).is_multiple_of(blocks) };
            together("multicast", parts, "a stage that the cluster's blocks can share")
        }
    }
}

fn check_resources(geometry: &Geometry, arch: &Arch) -> Result<(), Refusal> {
    let (needs, limit) = (geometry.shared_bytes, arch.shared_per_block());
    if needs > limit {
        return Err(Refusal::SharedMemory { needs, limit, arch: arch.name() });
    }
    let (needs, limit) = (geometry.registers, arch.registers_per_thread(geometry.threads));
    if needs > limit {
        return Err(Refusal::Registers { accumulators: geometry.accumulators, needs, limit });
    }
    Ok(())
}

fn check_split(problem: &Problem, variant: &Variant) -> Result<(), Refusal> {
    let k_tiles = problem.depth().div_ceil(variant.tile.k);
    let splits = variant.split_k * variant.cluster.splits();
    // Every split takes the same number of tiles but the last, which takes what is left.
    if (splits - 1) * k_tiles.div_ceil(splits) >= k_tiles {
        return Err(Refusal::SplitK { splits, k_tiles });
    }
    Ok(())
}
