//! Which families of variants are worth a look.

use super::geometry::{WgmmaLayout, decodes_tokens, tile_columns};
use crate::path::families::{Depths, Load, TALL};
use crate::path::{Cluster, Epilogue, Fusion, Variant, Warps};
use crate::problem::{Operation, Problem};

/// Tokens of a tile up to which every block may decode them for itself.
const LOW: u32 = 8;
/// Tokens times columns from which on it pays to stage the result in shared memory, about.
const STAGED: u32 = 1440;

/// How products may be fused by the best of all: both at once, since anything else loads tokens twice, or needs more
/// registers or a workspace.
pub(in crate::path) fn fusions(problem: &Problem) -> &'static [Fusion] {
    match problem.operation() {
        Operation::Gemm => &[Fusion::Single],
        Operation::DualGemm(_) => &[Fusion::Interleaved],
    }
}

/// Whether the best of all may be of this family.
pub(in crate::path) fn is_family(problem: &Problem, family: &Variant) -> bool {
    let Variant { split_k, cluster, persistent, .. } = *family;
    let (k, parts) = (family.tile.k, family.tile.columns / tile_columns(problem));
    let is_whole = split_k == 1 && cluster == Cluster::None;
    let sharers = match family.warps {
        // A warp that computes and loads has no time for small stages, unless there are only a few, and deep ones have no
        // room beside wide tiles.
        Warps::Uniform => return (k == 128 || k == 64 && problem.depth() <= 4 * k) && is_whole && parts > 1,
        // Those that a part of the columns has to itself, beyond one.
        Warps::Specialised(consumers) => consumers.saturating_sub(parts),
    };
    let is_deep_enough = match k {
        // What is shared has to be worth meeting for.
        64 => sharers == 0 || parts == 1 && sharers == 1,
        128 => true,
        // Deep stages are for warpgroups that share them, or for blocks that never drain theirs.
        _ => persistent || parts == 1 && sharers > 0,
    };
    let is_split_well = match (split_k, cluster) {
        (1, Cluster::None) => true,
        // Sums of wide tiles take long to meet, those of many parts longer.
        (1, _) => parts == 1 || parts < 4 && sharers == 0,
        (splits, _) => parts == 1 && splits <= 4 && k > 64,
    };
    // Narrow tiles have short epilogues: nothing to hide unless stages are deep.
    let is_worth_keeping = !persistent || parts > 1 || k == 256;
    is_deep_enough && is_split_well && is_worth_keeping
}

/// The height of a family's tiles when it is to be so many tokens or little more; none, if it has no use for them.
pub(in crate::path) fn height(problem: &Problem, family: &Variant, tokens: u32) -> Option<u32> {
    // Blocks of a cluster share out its tokens by eights.
    let tokens = tokens.next_multiple_of(8 * family.cluster.splits());
    // Every block decodes its tokens for itself, which pays where they are few.
    (!decodes_tokens(problem, family) || tokens <= LOW).then_some(tokens)
}

/// Whether one of a family may be the best with this.
pub(in crate::path) fn is_worth(family: &Variant, load: &Load) -> bool {
    let Load { tokens, rows, blocks, sms } = *load;
    let splits = family.split_k * family.cluster.splits();
    // No block of a few has a second tile; where all SMs have blocks, splits only add sums.
    let is_busy = if family.persistent { blocks > sms } else { splits == 1 || blocks <= sms + sms / 2 };
    // Lower tiles fill SMs better, which nobody sees where each has many.
    let is_low = tokens < TALL && 2 * tokens < rows && blocks > 8 * sms;
    is_busy && !is_low
}

/// How a variant's result leaves, most likely.
pub(in crate::path) fn epilogue(problem: &Problem, variant: &Variant) -> Epilogue {
    let (tile, splits) = (variant.tile, variant.split_k * variant.cluster.splits());
    // Persistent warpgroups that never meet drift apart.
    let meets = variant.persistent && tile.columns > tile_columns(problem);
    let is_staged = (meets || tile.tokens * tile.columns >= STAGED * splits) && !variant.needs_finish();
    if is_staged { Epilogue::Shared } else { Epilogue::Direct }
}

/// Depths at which one of a family is predicted first.
pub(in crate::path) fn depths() -> Depths {
    Depths::Deepest
}

/// And around a good one with so many stages, those at which warpgroups keep their places; all of K has `whole`.
pub(in crate::path) fn depths_around(layout: &WgmmaLayout, stages: u32, whole: u32) -> Vec<u32> {
    let turns = layout.k_groups;
    let in_turn = stages / turns * turns;
    vec![stages, in_turn, in_turn.saturating_sub(turns), in_turn.saturating_sub(2 * turns), whole]
}
