//! The rules of the path `wgmma`. The tile is the one that an estimate of clock cycles likes best, everything else follows
//! from it; the constants were measured on an H200 (docs/measurements/).

use super::ladder::{blocks, fusion};
use crate::format::{Format, PreparedLayout};
use crate::spec::{Arch, Cluster, Epilogue, Problem, Spec, Tile, Variant, WEIGHT_TILES_MAX, Warps, tile_columns};

/// Tokens of a tile at most: beyond, registers run out.
const TOKENS_MAX: u32 = 128;
/// Stages at most; the shared memory of a block says how many there are.
const STAGES_MAX: u32 = 16;
/// Clock cycles of a block beside its loop: launch, first loads, epilogue.
pub(super) const FIXED_CYCLES: u64 = 5600;
/// Clock cycles that two blocks take to exchange their sums.
const EXCHANGE_CYCLES: u64 = 2300;
/// Bytes that reach an SM in a clock cycle.
pub(super) const BYTES_PER_CYCLE: u64 = 60;
/// A group of more rows than this, on average, is worth wide tiles.
const WIDE_GROUP: u32 = 48;
/// Deep grouped work of more than one round of all SMs takes three m64 tiles a block.
const DEPTH_FOR_THREE: u32 = 4096;
/// Shallow grouped work takes, from so many rounds of all SMs on, tiles of which an SM holds two: one block's products are
/// under the other's first loads and last stores. Less takes persistent blocks.
const ROUNDS_FOR_PAIRS: u32 = 4;
const PAIR: (u32, u32, u32) = (104, 64, 6);

pub(super) fn wanted(problem: &Problem, m: u32, arch: &Arch) -> Variant {
    let variant = match problem.groups() {
        // More tiles of tokens than a grid has room for beside the columns.
        _ if m / TOKENS_MAX + problem.groups().unwrap_or(0) > Spec::GRID_YZ_MAX / 2 => persistent(problem),
        Some(_) => grouped(problem, m, arch),
        None => single(problem, m, arch),
    };
    // A kernel before it decodes NVFP4 tokens once; every block that does so for itself was slower at every M.
    Variant { prepass: problem.a_format() == Format::Nvfp4, ..variant }
}

fn single(problem: &Problem, m: u32, arch: &Arch) -> Variant {
    let rows = m.max(1);
    let tokens = rows.div_ceil(rows.div_ceil(TOKENS_MAX)).next_multiple_of(8);
    let ways = (1..=WEIGHT_TILES_MAX).flat_map(|tiles| [(tiles, 1), (tiles, 2)]);
    let (tiles, splits) = ways
        .filter(|(tiles, splits)| *splits == 1 || can_split(problem, m, tokens, *tiles, arch))
        .min_by_key(|(tiles, splits)| cycles(problem, m, tokens, *tiles, *splits, arch))
        .unwrap_or((1, 1));
    let k = if tokens <= 32 && splits == 1 { 256 } else { 128 };
    let tile = Tile { tokens, columns: tiles * tile_columns(problem), k };
    let k_groups = k_groups(tokens, tiles);
    let stages = STAGES_MAX / k_groups * k_groups;
    let variant = Variant::wgmma(tile, stages, fusion(problem), tiles * k_groups);
    // Stores from registers go well under the tail of other warps, except behind an exchange of sums.
    let epilogue = if splits == 1 { Epilogue::Direct } else { Epilogue::Shared };
    let cluster = if splits == 2 { Cluster::SplitK(2) } else { Cluster::None };
    // Four warpgroups have registers for a wide tile only if nobody else is there.
    let warps = if tiles == 4 && tokens > 64 { Warps::Uniform } else { variant.warps };
    Variant { epilogue, cluster, warps, ..variant }
}

/// Whether two blocks may share the K of a tile: where the tokens go round evenly, every block has loops enough to be
/// worth it, and all of them run at once.
fn can_split(problem: &Problem, m: u32, tokens: u32, tiles: u32, arch: &Arch) -> bool {
    let tile = Tile { tokens, columns: tiles * tile_columns(problem), k: 128 };
    let fits = 2 * blocks(problem, m, tile) <= arch.sms();
    fits && tokens.is_multiple_of(16) && tokens > 32 && tiles <= 3 && problem.depth() >= 2048
}

/// Warpgroups that share the K of a tile: the fewer tokens, the less a warpgroup's instructions hide behind its products.
fn k_groups(tokens: u32, tiles: u32) -> u32 {
    let wanted = match tokens {
        ..=8 => 4,
        9..=16 => 3,
        17..=32 => 2,
        33..=64 => 3,
        _ => 1,
    };
    // Four warpgroups at most.
    wanted.min(4 / tiles).max(1)
}

/// Clock cycles until the last block is done, by what limits a block: the tensor core, or what reaches its SM.
fn cycles(problem: &Problem, m: u32, tokens: u32, tiles: u32, splits: u32, arch: &Arch) -> u64 {
    let tile = Tile { tokens, columns: tiles * tile_columns(problem), k: 128 };
    let rounds = u64::from((blocks(problem, m, tile) * splits).div_ceil(arch.sms()));
    let products = 2 * u64::from(tiles * tokens);
    let loads = (u64::from(tokens) * 128 + u64::from(tiles) * PreparedLayout::BLOCK_BYTES as u64) / BYTES_PER_CYCLE;
    let blocks_of_k = u64::from((problem.depth() / 64).div_ceil(splits));
    let exchange = if splits == 1 { 0 } else { EXCHANGE_CYCLES };
    rounds * (FIXED_CYCLES + exchange + blocks_of_k * products.max(loads))
}

fn grouped(problem: &Problem, m: u32, arch: &Arch) -> Variant {
    let groups = problem.groups().unwrap_or(1).clamp(1, m.max(1));
    let average = m.div_ceil(groups).max(1);
    let step = tile_columns(problem);
    if average <= WIDE_GROUP {
        // Room for groups of twice the average; larger ones take several tiles.
        let tokens = (2 * average).next_multiple_of(8).clamp(8, 64);
        let (k, k_groups) = if tokens <= 16 { (256, 3) } else { (128, 2) };
        let tile = Tile { tokens, columns: step, k };
        return Variant::wgmma(tile, STAGES_MAX / k_groups * k_groups, fusion(problem), k_groups);
    }
    let three = Tile { tokens: TOKENS_MAX, columns: 3 * step, k: 128 };
    if problem.depth() >= DEPTH_FOR_THREE && blocks(problem, m, three) > arch.sms() {
        return Variant::wgmma(three, STAGES_MAX, fusion(problem), 3);
    }
    let (tokens, k, stages) = PAIR;
    let pair = Tile { tokens, columns: 2 * step, k };
    if blocks(problem, m, pair) > ROUNDS_FOR_PAIRS * arch.sms() {
        return Variant::wgmma(pair, stages, fusion(problem), 2);
    }
    persistent(problem)
}

/// As many blocks as run at once.
fn persistent(problem: &Problem) -> Variant {
    let tile = Tile { tokens: TOKENS_MAX, columns: 2 * tile_columns(problem), k: 128 };
    Variant { persistent: true, ..Variant::wgmma(tile, STAGES_MAX, fusion(problem), 2) }
}
