//! The rules of the path `mma`: each fixes one axis, from the problem and the device alone. The constants are what won on an
//! H200 (docs/measurements/).

use super::ladder::{blocks, fusion};
use crate::spec::{Arch, Operation, Problem, Tile, Variant};

/// Tokens of a tile at most.
const TOKENS_MAX: u32 = 128;
/// Columns of a wide tile: one m16 tile of weights for each of eight warps.
const COLUMNS: u32 = 128;
/// A small tile.
const SMALL: Tile = Tile { tokens: 64, columns: 64, k: 64 };
/// Splits of K at most: beyond, adding up the partial sums costs more than idle SMs do.
const SPLITS_MAX: u32 = 8;
/// A split of K has at least this many elements, so that its pipeline gets past its first stages.
const SPLIT_DEPTH: u32 = 512;
/// Stages at most: more bring nothing, nor does a fourth with a deep tile.
const STAGES_MAX: u32 = 4;

pub(super) fn wanted(problem: &Problem, m: u32, arch: &Arch) -> Variant {
    let tile = tile(problem, m, arch);
    let stages = if tile.k > 128 { 3 } else { STAGES_MAX };
    Variant::mma(tile, stages, fusion(problem), splits(problem, m, tile, arch))
}

/// The tile. With few tokens a narrow and deep one, in which warps share the K of a stage; with many a wide one, unless
/// small ones, of which an SM holds several, do better: where wide ones leave SMs idle and K cannot be split instead, and
/// for groups, whose sizes are known only on the device and rarely fill wide tiles.
fn tile(problem: &Problem, m: u32, arch: &Arch) -> Tile {
    let tokens = token_tile(problem, m);
    let (columns, k) = match tokens {
        ..=16 => (32, 256),
        17..=48 => (64, 128),
        49..=64 => (COLUMNS, 128),
        _ => (COLUMNS, 64),
    };
    let wanted = Tile { tokens, columns, k };
    if tokens <= SMALL.tokens {
        return wanted;
    }
    if problem.groups().is_some() {
        return if problem.operation() == Operation::Gemm { Tile { columns: COLUMNS, ..SMALL } } else { SMALL };
    }
    let is_idle = is_idle(blocks(problem, m, wanted), arch) && splits(problem, m, wanted, arch) == 1;
    if is_idle { SMALL } else { wanted }
}

/// The rows of one group, shared evenly by as few tiles as hold them.
fn token_tile(problem: &Problem, m: u32) -> u32 {
    let rows = m.div_ceil(problem.groups().unwrap_or(1).max(1)).max(1);
    let rows = rows.div_ceil(rows.div_ceil(TOKENS_MAX));
    rows.next_multiple_of(if rows > 64 { 16 } else { 8 })
}

/// Splits of K as long as all blocks still run at once: an SM holds one wide block, or two others.
fn splits(problem: &Problem, m: u32, tile: Tile, arch: &Arch) -> u32 {
    let room = if tile.columns < COLUMNS { 2 * arch.sms() } else { arch.sms() };
    let blocks = blocks(problem, m, tile);
    let fits = |splits: u32| blocks.saturating_mul(splits) <= room && problem.depth() / splits >= SPLIT_DEPTH;
    (1..=SPLITS_MAX).rev().find(|splits| splits.is_power_of_two() && fits(*splits)).unwrap_or(1)
}

/// Whether more than a fifth of the SMs would have no block.
fn is_idle(blocks: u32, arch: &Arch) -> bool {
    u64::from(blocks) * 5 < u64::from(arch.sms()) * 4
}
