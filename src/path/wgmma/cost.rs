//! What one block has to do.

use super::geometry::{WgmmaLayout, block_bytes, tile_columns, tiles_per_part};
use super::registers::Stage;
use crate::format::Format;
use crate::path::cost::{Block, Constants, Cover, Widths, rotation, steps};
use crate::path::{Epilogue, Fusion, Tile, Variant, Warps};
use crate::problem::Problem;

/// Warpgroups of a block that take turns with the stages.
pub(in crate::path) fn turns(layout: &WgmmaLayout) -> u32 {
    layout.k_groups
}

/// The widths that a tile may be multiplied in.
pub(in crate::path) fn widths(layout: &WgmmaLayout, variant: &Variant) -> Widths {
    Widths::of(variant.tile.tokens, layout.sixteenths(variant), layout.width_step())
}

/// Groups that a block's table is charged for at most: more are counted, not compared, and 128 take 0.4 µs more than 32 (H200).
const TABLE_FITTED: u32 = 32;

/// e4m3 tiles of more tokens are tall.
const TALL_ABOVE: u32 = 96;

/// Values of an m64 tile and 64 of K, and so their bytes as e4m3.
const TILE_BYTES: f64 = 64.0 * 64.0;

/// Cycles of shared memory, of 128 bytes, for an m64 tile and 64 of K: so many bytes of weights, what tensor cores read of tokens, and what
/// comes of these for one of `tiles`.
fn shared_memory(weights: f64, width: f64, tiles: f64) -> f64 {
    let tokens = 64.0 * width;
    (tokens + weights + tokens / tiles) / 128.0
}

/// Where others decode: tensor cores read weights so many times, once they are written; codes and scales come and are read, with as many
/// bytes of the table. It bounds these kernels.
fn decoded_memory(problem: &Problem, reads: u32, width: f64, tiles: f64, c: &Constants) -> f64 {
    let weights = f64::from(reads) * TILE_BYTES + TILE_BYTES + 3.0 * f64::from(block_bytes(problem));
    c.decoded * shared_memory(weights, width, tiles)
}

/// Of expanded weights, which come and are read once.
fn expanded_memory(width: f64, tiles: f64, c: &Constants) -> f64 {
    c.expanded * shared_memory(2.0 * TILE_BYTES, width, tiles)
}

/// How much more decoding takes where products are apart.
fn apart(tiles_per_part: u32, c: &Constants) -> f64 {
    if tiles_per_part == 2 { c.decode_apart } else { 1.0 }
}

/// What decoding takes of registers and instructions, in tiles that are not tall.
fn decoding(is_e4m3: bool, apart: f64, width: f64, c: &Constants) -> f64 {
    // Tensor cores read half as many registers of e4m3 values.
    let of_token = if is_e4m3 { c.decode_width / 2.0 + c.promotion } else { c.decode_width };
    c.decode * apart + of_token * width
}

/// What no kernel of a fusion undercuts to decode 64 rows and 64 of K, `k` of it at a time, for so many tokens, whoever does.
pub(crate) fn least_decoding(problem: &Problem, fusion: Fusion, k: u32, width: f64, c: &Constants) -> f64 {
    let is_e4m3 = problem.compute_format() == Format::E4m3;
    let own = decoding(is_e4m3, apart(tiles_per_part(fusion), c), width, c);
    match () {
        () if problem.is_expanded() => expanded_memory(width, f64::INFINITY, c),
        () if is_e4m3 => (own + issue(k, c)).min(decoded_memory(problem, 1, width, f64::INFINITY, c)),
        () => own + issue(k, c),
    }
}

/// Cycles for the table of groups: every block sorts them for itself.
fn table(problem: &Problem, c: &Constants) -> f64 {
    problem.groups().map_or(0.0, |groups| c.table + c.table_group * f64::from(groups.min(TABLE_FITTED)))
}

/// What no block takes less than before its loop.
pub(crate) fn least_start(problem: &Problem, c: &Constants) -> f64 {
    c.block + table(problem, c)
}

/// Multiplications of 64 rows for a step of the tile, of one launch.
fn products(layout: &WgmmaLayout, problem: &Problem, variant: &Variant) -> f64 {
    let tiles = f64::from(variant.tile.columns / tile_columns(problem));
    tiles / f64::from(layout.tiles_per_part) * f64::from(layout.product_groups) * f64::from(layout.passes)
}

/// Warps that load as well, or tiles that come one after the other, leave the loops of ragged tiles fewer registers.
fn short(layout: &WgmmaLayout, variant: &Variant, c: &Constants) -> f64 {
    let is_short = layout.ragged && (variant.warps == Warps::Uniform || variant.persistent);
    if is_short { c.ragged_short } else { 0.0 }
}

/// The instructions of a stage, for 64 of K.
fn issue(k: u32, c: &Constants) -> f64 {
    c.stage_issue / f64::from(k / 64)
}

/// What decoding takes more, a step, than with warps that do nothing else and `k` of K at a time.
pub(in crate::path) fn more_decoding(
    layout: &WgmmaLayout,
    problem: &Problem,
    variant: &Variant,
    k: u32,
    c: &Constants,
) -> f64 {
    if variant.warps.decoders() > 0 {
        return 0.0;
    }
    // Of e4m3 values those tiles alone are ragged in blocks that stay which have registers.
    let short = if layout.rounds() { 0.0 } else { short(layout, variant, c) };
    products(layout, problem, variant) * (short + issue(variant.tile.k, c) - issue(k, c))
}

/// With fewer stages their places may stay their warpgroups'.
pub(in crate::path) fn held_back(layout: &WgmmaLayout, variant: &Variant, _: u32, c: &Constants) -> f64 {
    rotation(variant.stages, layout.k_groups, c).max(1.0)
}

/// The work of a block.
pub(in crate::path) fn block(
    layout: &WgmmaLayout,
    problem: &Problem,
    variant: &Variant,
    _: u32,
    cover: &Cover,
    c: &Constants,
) -> Block {
    let tile = variant.tile;
    let tiles = f64::from(tile.columns / tile_columns(problem));
    let passes = f64::from(layout.passes);
    let products = products(layout, problem, variant);
    // Tensor cores take e4m3 values at twice the rate.
    let rate = if layout.rounds() { 2.0 } else { 1.0 };
    let lines_cost = match layout.stage {
        Stage::Rounded if tile.tokens > TALL_ABOVE => c.tall * c.tall_short,
        Stage::Lines if tile.tokens > TALL_ABOVE => c.tall,
        _ => 1.0,
    };
    let apart = apart(layout.tiles_per_part, c);
    let is_decoded = layout.stage == Stage::Decoded;
    let multiply = (c.tensor * cover.width).max(c.tensor_min) / rate;
    let is_expanded = problem.is_expanded();
    let decode = match () {
        () if is_decoded => {
            decoded_memory(problem, layout.token_parts * layout.sum_parts, cover.width, layout.tiles.into(), c)
        }
        () if is_expanded => expanded_memory(cover.width, layout.tiles.into(), c),
        () => lines_cost * decoding(layout.rounds(), apart, cover.width, c),
    };
    let decoded_first = if is_decoded { c.decoded_first } else { 0.0 };
    let stays = if variant.persistent { c.stays } else { 0.0 };
    let decode_chain = if is_expanded { 0.0 } else { c.decode_chain * apart };
    let issue = if is_decoded { 0.0 } else { issue(tile.k, c) };
    let multicast = f64::from(variant.cluster.multicast());
    let token_bytes = (if layout.decodes_tokens { 36.0 } else { 128.0 / rate }) * cover.rows;
    let bytes = passes * (token_bytes + tiles * f64::from(block_bytes(problem)));
    let steps_per_stage = f64::from(tile.k) / 64.0;
    let is_uniform = variant.warps == Warps::Uniform;
    // Warpgroups that never meet drift apart, and the slowest holds the stages.
    let drifts = variant.persistent && variant.epilogue == Epilogue::Direct && tiles > 1.0;
    let drift = if drifts { c.drift } else { 1.0 };
    // In halves a warpgroup does one after the other, while the tensor cores have another's, and the widths of a tile cost nothing. Expanded
    // weights, of which nothing is decoded, are told as before in this: no halves of those were compared with it.
    let has_halves = layout.stage == Stage::Halves;
    let is_halved = has_halves && !is_expanded;
    let (ragged, ragged_turn) = if layout.ragged && !is_halved { (c.ragged, c.ragged_turn) } else { (0.0, 0.0) };
    let short = if is_halved { 0.0 } else { short(layout, variant, c) };
    // As tall as the tile is: a tile with few rows waits for its tokens all the same.
    let lines = f64::from(tile.tokens) * steps_per_stage;
    let token_decoding = if layout.decodes_tokens { c.decode_stage + c.decode_line * lines } else { 0.0 };
    let loading = if is_uniform { 0.0 } else { c.load + c.load_tile * tiles };
    Block {
        steps: steps(problem, variant),
        steps_per_stage,
        stages: f64::from(variant.stages),
        turns: f64::from(layout.k_groups),
        rotation: rotation(variant.stages, layout.k_groups, c),
        tensor: products * multiply,
        decode: products * (decode * drift + ragged + short + issue),
        ingress: bytes / c.ingress,
        serial: match layout.stage {
            // All warpgroups ask at the same time, and promote at the same time.
            Stage::Decoded => {
                products * multiply + c.promoted * cover.width / f64::from(layout.token_parts) + c.promoted_step
            }
            _ if is_halved => passes * (multiply + decode.max(decode_chain) + c.turn),
            _ => passes * (multiply.max(decode_chain) + c.turn + ragged_turn),
        },
        serial_per_stage: passes * (c.stage + if is_uniform { c.uniform } else { 0.0 }),
        loading: passes * (loading.max(token_decoding) + c.couple * (multicast - 1.0)),
        latency: c.latency * (1.0 + c.multicast * (multicast - 1.0)),
        // They give a stage back at its end.
        hold: if has_halves { 0.0 } else { c.hold },
        start: least_start(problem, c) + stays + decoded_first,
        start_beside: c.table_beside * table(problem, c),
        start_behind: if has_halves { c.halves_behind } else { 0.0 },
        tail: meet(layout, problem, variant, cover, c) + stores(problem, variant, cover, c)[variant.epilogue as usize],
    }
}

/// What no epilogue takes less than, and what each takes more.
pub(in crate::path) fn tails(
    layout: &WgmmaLayout,
    problem: &Problem,
    variant: &Variant,
    _: &Block,
    cover: &Cover,
    c: &Constants,
) -> (f64, [f64; Epilogue::ALL.len()]) {
    let mut stores = stores(problem, variant, cover, c);
    let least = stores.iter().copied().fold(f64::INFINITY, f64::min);
    for cycles in &mut stores {
        *cycles -= least;
    }
    (meet(layout, problem, variant, cover, c) + least, stores)
}

/// What no kernel without splits of K takes less than behind its loops, for tiles of so many columns.
pub(crate) fn least_stores(problem: &Problem, columns: u32, cover: &Cover, c: &Constants) -> f64 {
    let tile = Tile { tokens: 0, columns, k: 0 };
    let variant = Variant::wgmma(tile, 1, Fusion::Single, 1);
    stores(problem, &variant, cover, c).into_iter().fold(f64::INFINITY, f64::min)
}

/// What each epilogue takes for the result: every warpgroup stores its part, by way of the same shared memory and the same few
/// load-store units, so the whole tile counts.
fn stores(problem: &Problem, variant: &Variant, cover: &Cover, c: &Constants) -> [f64; Epilogue::ALL.len()] {
    if variant.needs_finish() {
        return [c.partial_token * sums(problem, variant, cover); Epilogue::ALL.len()];
    }
    let splits = f64::from(variant.cluster.splits());
    let result = result(problem, variant, cover) / splits;
    let mut stores = [0.0; Epilogue::ALL.len()];
    stores[Epilogue::Direct as usize] = c.direct_token * result;
    stores[Epilogue::Shared as usize] = c.shared + c.shared_token * result;
    // A copy for each row.
    stores[Epilogue::Tma as usize] = c.bulk + c.bulk_token * cover.width / splits;
    stores
}

/// 64 rows of sums.
fn sums(problem: &Problem, variant: &Variant, cover: &Cover) -> f64 {
    cover.width * f64::from(variant.tile.columns / tile_columns(problem))
}

/// Sums that meet, of the whole tile as well.
fn meet(layout: &WgmmaLayout, problem: &Problem, variant: &Variant, cover: &Cover, c: &Constants) -> f64 {
    let sums = sums(problem, variant, cover);
    let others = f64::from(layout.k_groups) - 1.0;
    let reduce = if others > 0.0 { c.reduce + c.reduce_token * others * sums } else { 0.0 };
    let handed_over = if layout.product_groups == 2 { c.reduce + c.reduce_token * sums / 2.0 } else { 0.0 };
    let splits = f64::from(variant.cluster.splits());
    let exchange = c.exchange + c.exchange_token * sums * (splits - 1.0) / splits;
    reduce + handed_over + if splits > 1.0 { exchange } else { 0.0 }
}

/// 32 columns of a 16-bit C.
fn result(problem: &Problem, variant: &Variant, cover: &Cover) -> f64 {
    cover.width * f64::from(variant.tile.columns) / 32.0 * problem.c_format().bytes(1) as f64 / 2.0
}
