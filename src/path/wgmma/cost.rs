//! What one block has to do, by path: the work of its loop along K, and what is before and behind it.

use super::constants::Constants;
use super::cover::{Cover, Widths};
use crate::format::{Format, PreparedLayout};
use crate::spec::{Epilogue, Fusion, Geometry, Layout, MmaLayout, Problem, Variant, Warps, WgmmaLayout, tile_columns};

/// The work of a block. All times are in cycles; those of the loop are for 64 of K ("a step") unless said otherwise.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    /// Steps of the loop, those of one split of K.
    pub(super) steps: f64,
    /// Steps of a stage.
    pub(super) steps_per_stage: f64,
    /// Stages that shared memory holds.
    pub(super) stages: f64,
    /// Warpgroups (or warps) that take turns with the stages.
    pub(super) turns: f64,
    /// How much longer the loop takes because of how stages and turns go together, as a factor.
    pub(super) rotation: f64,
    /// The tensor cores.
    pub(super) tensor: f64,
    /// The schedulers, with the instructions that decode.
    pub(super) decode: f64,
    /// What reaches the SM.
    pub(super) ingress: f64,
    /// One warpgroup's own way, with nobody in it.
    pub(super) serial: f64,
    /// What is added to that once a stage.
    pub(super) serial_per_stage: f64,
    /// The warps that load, for a stage.
    pub(super) loading: f64,
    /// From the request of a stage to its arrival.
    pub(super) latency: f64,
    /// Share of a warpgroup's time for a stage after which it releases the stage before.
    pub(super) hold: f64,
    /// Before the loop.
    pub(super) start: f64,
    /// After the loop.
    pub(super) tail: f64,
}

impl Block {
    /// Of a variant, when its tiles of tokens are as `cover` says.
    pub(super) fn of(
        problem: &Problem,
        variant: &Variant,
        geometry: &Geometry,
        cover: &Cover,
        constants: &Constants,
    ) -> Self {
        match &geometry.layout {
            Layout::Wgmma(layout) => wgmma(problem, variant, layout, cover, constants),
            Layout::Mma(layout) => mma(problem, variant, geometry.shared_bytes, layout, cover, constants),
        }
    }
}

/// Warpgroups of a block that take turns with the stages.
pub(super) fn turns(layout: &Layout) -> u32 {
    match layout {
        Layout::Wgmma(layout) => layout.k_groups,
        Layout::Mma(_) => 1,
    }
}

/// The widths that a tile of a variant may be multiplied in.
pub(super) fn widths(variant: &Variant, layout: &Layout) -> Widths {
    match layout {
        Layout::Wgmma(layout) => Widths::of(layout, variant),
        Layout::Mma(_) => Widths::default(),
    }
}

/// Stages of a split, the last one cut short.
pub(super) fn stages(problem: &Problem, variant: &Variant) -> u32 {
    problem.depth().div_ceil(variant.tile.k).div_ceil(variant.split_k * variant.cluster.splits())
}

/// Steps of a split, with the last stage of the tile along K cut short.
fn steps(problem: &Problem, variant: &Variant) -> f64 {
    f64::from((stages(problem, variant) * variant.tile.k).min(problem.depth())) / 64.0
}

fn wgmma(problem: &Problem, variant: &Variant, layout: &WgmmaLayout, cover: &Cover, c: &Constants) -> Block {
    let tile = variant.tile;
    let tiles = f64::from(tile.columns / tile_columns(problem));
    let passes = f64::from(layout.passes);
    // Multiplications of 64 rows for a step of the tile, of one launch.
    let apart = layout.tiles_per_part == 2;
    let products = tiles / f64::from(layout.tiles_per_part) * f64::from(layout.product_groups) * passes;
    let decode = c.decode * if apart { c.decode_apart } else { 1.0 } + c.decode_width * cover.width;
    let multiply = (c.tensor * cover.width).max(c.tensor_min);
    let multicast = f64::from(variant.cluster.multicast());
    let token_bytes = (if layout.decodes_tokens() { 36.0 } else { 128.0 }) * cover.rows;
    let bytes = passes * (token_bytes + tiles * PreparedLayout::BLOCK_BYTES as f64);
    let steps_per_stage = f64::from(tile.k) / 64.0;
    let is_uniform = variant.warps == Warps::Uniform;
    // Warpgroups that never meet drift apart, and the slowest holds the stages.
    let drifts = variant.persistent && variant.epilogue == Epilogue::Direct && tiles > 1.0;
    let drift = if drifts { c.drift } else { 1.0 };
    let (ragged, ragged_turn) = if layout.ragged { (c.ragged, c.ragged_turn) } else { (0.0, 0.0) };
    // Warps that load as well, or tiles that come one after the other, leave the loops fewer registers.
    let short = if layout.ragged && (is_uniform || variant.persistent) { c.ragged_short } else { 0.0 };
    // Every block sorts the groups for itself.
    let table = problem.groups().map_or(0.0, |groups| c.table + c.table_group * f64::from(groups));
    // As tall as the tile is: a tile with few rows waits for its tokens all the same.
    let lines = f64::from(tile.tokens) * steps_per_stage;
    let token_decoding = if layout.decodes_tokens() { c.decode_stage + c.decode_line * lines } else { 0.0 };
    let loading = if is_uniform { 0.0 } else { c.load + c.load_tile * tiles };
    Block {
        steps: steps(problem, variant),
        steps_per_stage,
        stages: f64::from(variant.stages),
        turns: f64::from(layout.k_groups),
        rotation: if variant.stages.is_multiple_of(layout.k_groups) { 1.0 } else { c.rotation },
        tensor: products * multiply,
        decode: products * (decode * drift + ragged + short),
        ingress: bytes / c.ingress,
        serial: passes
            * (multiply.max(c.decode_chain * if apart { c.decode_apart } else { 1.0 }) + c.turn + ragged_turn),
        serial_per_stage: passes * (c.stage + if is_uniform { c.uniform } else { 0.0 }),
        loading: passes * (loading.max(token_decoding) + c.couple * (multicast - 1.0)),
        latency: c.latency * (1.0 + c.multicast * (multicast - 1.0)),
        hold: c.hold,
        start: c.block + table,
        tail: wgmma_tail(problem, variant, layout, cover, c),
    }
}

/// Sums that meet and the result that leaves: every warpgroup does its part, by way of the same shared memory and the same
/// few load-store units, so the whole tile counts.
fn wgmma_tail(problem: &Problem, variant: &Variant, layout: &WgmmaLayout, cover: &Cover, c: &Constants) -> f64 {
    meet(problem, variant, layout, cover, c) + store(problem, variant, variant.epilogue, cover, c)
}

/// No epilogue of this variant takes less.
pub(super) fn least_tail(
    problem: &Problem,
    variant: &Variant,
    layout: &Layout,
    block: &Block,
    cover: &Cover,
    c: &Constants,
) -> f64 {
    match layout {
        Layout::Mma(_) => block.tail,
        Layout::Wgmma(layout) => {
            let stores = Epilogue::ALL.iter().map(|epilogue| store(problem, variant, *epilogue, cover, c));
            meet(problem, variant, layout, cover, c) + stores.fold(f64::INFINITY, f64::min)
        }
    }
}

/// What each epilogue takes beyond [`least_tail`].
pub(super) fn more_tail(
    problem: &Problem,
    variant: &Variant,
    layout: &Layout,
    cover: &Cover,
    c: &Constants,
) -> [f64; Epilogue::ALL.len()] {
    let mut stores = [0.0; Epilogue::ALL.len()];
    if let Layout::Wgmma(_) = layout {
        stores
            .iter_mut()
            .zip(Epilogue::ALL)
            .for_each(|(us, epilogue)| *us = store(problem, variant, *epilogue, cover, c));
    }
    let least = stores.iter().copied().fold(f64::INFINITY, f64::min);
    stores.map(|us| us - least)
}

/// 64 rows of sums.
fn sums(problem: &Problem, variant: &Variant, cover: &Cover) -> f64 {
    cover.width * f64::from(variant.tile.columns / tile_columns(problem))
}

fn meet(problem: &Problem, variant: &Variant, layout: &WgmmaLayout, cover: &Cover, c: &Constants) -> f64 {
    let sums = sums(problem, variant, cover);
    let others = f64::from(layout.k_groups) - 1.0;
    let reduce = if others > 0.0 { c.reduce + c.reduce_token * others * sums } else { 0.0 };
    let handed_over = if layout.product_groups == 2 { c.reduce + c.reduce_token * sums / 2.0 } else { 0.0 };
    let splits = f64::from(variant.cluster.splits());
    let exchange = c.exchange + c.exchange_token * sums * (splits - 1.0) / splits;
    reduce + handed_over + if splits > 1.0 { exchange } else { 0.0 }
}

fn store(problem: &Problem, variant: &Variant, epilogue: Epilogue, cover: &Cover, c: &Constants) -> f64 {
    let splits = f64::from(variant.cluster.splits());
    let result = result(problem, variant, cover) / splits;
    match epilogue {
        _ if needs_finish(variant) => c.partial_token * sums(problem, variant, cover),
        Epilogue::Direct => c.direct_token * result,
        Epilogue::Shared => c.shared + c.shared_token * result,
        // A copy for each row.
        Epilogue::Tma => c.bulk + c.bulk_token * cover.width / splits,
    }
}

/// 32 columns of a 16-bit C.
fn result(problem: &Problem, variant: &Variant, cover: &Cover) -> f64 {
    cover.width * f64::from(variant.tile.columns) / 32.0 * problem.c_format().bytes(1) as f64 / 2.0
}

/// Partial sums leave the block.
pub(super) fn needs_finish(variant: &Variant) -> bool {
    variant.split_k > 1 || variant.fusion == Fusion::TwoPass
}

fn mma(
    problem: &Problem,
    variant: &Variant,
    shared_bytes: u32,
    layout: &MmaLayout,
    cover: &Cover,
    c: &Constants,
) -> Block {
    let tile = variant.tile;
    let (passes, products) = match variant.fusion {
        Fusion::Interleaved => (1.0, 2.0),
        Fusion::Sequential => (2.0, 2.0),
        _ => (1.0, 1.0),
    };
    // In tiles of 64 rows of weights, as for the path `wgmma`.
    let rows = products * f64::from(tile.columns) / 64.0;
    let row_bytes = |format: Format| if format == Format::Nvfp4 { 36.0 } else { 128.0 };
    let bytes = passes * row_bytes(problem.a_format()) * cover.rows + 64.0 * rows * row_bytes(problem.b_format());
    let decodes = |format: Format| if format == Format::Nvfp4 { 1.0 } else { 0.25 };
    // Warps along the tokens each decode the weights for themselves.
    let weights = c.mma_decode * decodes(problem.b_format()) * rows * f64::from(layout.warps_tokens);
    let tokens = if problem.a_format() == Format::Nvfp4 { c.mma_decode_token * cover.width * passes } else { 0.0 };
    let turns = f64::from(layout.warps_k);
    let places = f64::from(layout.warps_columns * layout.warps_tokens);
    let steps_per_stage = f64::from(tile.k) / 64.0;
    // What is held for more stages is not there as a cache.
    let crowded = 1.0 + c.mma_crowded * f64::from(shared_bytes) / 131_072.0;
    let tensor = c.mma_tensor * cover.width * rows * crowded;
    let weights = weights * crowded;
    Block {
        steps: steps(problem, variant),
        steps_per_stage,
        stages: f64::from(variant.stages),
        turns: 1.0,
        rotation: 1.0,
        tensor,
        decode: weights + tokens,
        ingress: bytes / c.mma_ingress,
        // Few warps do not fill the schedulers.
        serial: c.mma_chain * (tensor + weights) * (8.0 / (places * turns)).max(1.0),
        serial_per_stage: passes * c.mma_stage,
        loading: 0.0,
        latency: c.mma_latency,
        hold: c.mma_hold,
        start: c.mma_block,
        tail: cover.width * rows / (places / 8.0) * (c.mma_store_token + c.mma_reduce_token * (turns - 1.0)),
    }
}
