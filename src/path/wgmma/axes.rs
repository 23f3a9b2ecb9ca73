//! The values that are worth searching, and the plainest of them.

use super::geometry::{Sharing, tile_columns};
use super::registers::{HALVES_STEP, WIDEST_TOKENS};
use crate::format::Format;
use crate::path::axes::{Axes, TILE_K, TILE_TOKENS_MAX, TOKENS_SHARED};
use crate::path::{Cluster, Epilogue, Fusion, MatrixPath, Rows, Tile, Variant, Warps};
use crate::problem::Problem;

/// Tiles may be any multiple of 8 tokens.
const TOKENS: [u32; 12] = [8, 16, 24, 32, 40, 48, 64, 80, 96, 128, 192, 256];
const STAGES: [u32; 11] = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20];
const WARPS: [Warps; 5] =
    [Warps::Specialised(1), Warps::Specialised(2), Warps::Specialised(3), Warps::Specialised(4), Warps::Uniform];
/// The same of weights that become e4m3.
const ROUNDED_WARPS: [Warps; 8] = [
    WARPS[0],
    WARPS[1],
    WARPS[2],
    WARPS[3],
    Warps::Uniform,
    Warps::Decoding { consumers: 1, decoders: 1 },
    Warps::Decoding { consumers: 2, decoders: 1 },
    Warps::Decoding { consumers: 2, decoders: 2 },
];
/// Splits of K and clusters, of which a variant has one or the other.
const SHARING: [(u32, Cluster); 8] = [
    (1, Cluster::None),
    (1, Cluster::SplitK(2)),
    (1, Cluster::SplitK(4)),
    (1, Cluster::Multicast(2)),
    (1, Cluster::Multicast(4)),
    (2, Cluster::None),
    (4, Cluster::None),
    (8, Cluster::None),
];

/// For a problem that the path takes.
pub(in crate::path) fn axes(problem: &Problem) -> Axes {
    let step = tile_columns(problem);
    let is_rounded = problem.compute_format() == Format::E4m3;
    Axes {
        path: MatrixPath::Wgmma,
        tokens: &TOKENS,
        tokens_always: TOKENS_SHARED,
        tokens_even: if is_rounded { TILE_TOKENS_MAX } else { WIDEST_TOKENS },
        tokens_step: if is_rounded { HALVES_STEP } else { 1 },
        columns: [step, 2 * step, 3 * step, 4 * step],
        k: &TILE_K,
        stages: &STAGES,
        fusions: Fusion::ALL,
        warps: if is_rounded && !problem.is_expanded() { &ROUNDED_WARPS } else { &WARPS },
        sharing: &SHARING,
        epilogues: Epilogue::ALL,
        persistent: &[false, true],
        prepass: if problem.a_format() == Format::Nvfp4 { &[true, false] } else { &[false] },
        rows: &[Rows::Weights],
    }
}

/// One stage of a 128×128 tile, stored from registers; NVFP4 tokens are decoded by a kernel before. Half as high, where warps
/// that load are needed; two stages, where one is read until the next has come.
pub(in crate::path) fn baseline(problem: &Problem, fusion: Fusion) -> Variant {
    let k = if problem.compute_format() == Format::E4m3 { 128 } else { 64 };
    if problem.is_gathered() || problem.has_k_factors() {
        let stages = if problem.has_k_factors() { 2 } else { 1 };
        let plain = Variant::wgmma(Tile { tokens: 64, columns: 128, k }, stages, fusion, 2);
        let consumers = Sharing::new(&plain, 128 / tile_columns(problem)).needed;
        return Variant { warps: Warps::Specialised(consumers), epilogue: Epilogue::Direct, ..plain };
    }
    let prepass = problem.a_format() == Format::Nvfp4;
    let plain = Variant::wgmma(Tile { tokens: 128, columns: 128, k }, 1, fusion, 2);
    Variant { warps: Warps::Uniform, epilogue: Epilogue::Direct, prepass, ..plain }
}
