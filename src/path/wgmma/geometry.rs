//! The path `wgmma`: warps that load, warpgroups that compute, and what lies where in shared memory.

use super::registers::{FACTOR_TOKENS, K_BLOCKS_OF_LINE, Shifted, Stage, Work};
use crate::format::{Coding, Format, PreparedLayout};
use crate::path::geometry::{Geometry, Grid, K_BLOCK, part_width, rows_bytes};
use crate::path::{Cluster, Epilogue, Fusion, Layout, Tile, Variant, Warps};
use crate::problem::Problem;

/// Warps that bring a tile group's tokens into shared memory by themselves, beside the one that loads weights, if any do: registers are
/// shared out to warps by fours, and more than two consumers need theirs.
fn token_warps(problem: &Problem, variant: &Variant, consumers: u32) -> u32 {
    match () {
        () if variant.fusion == Fusion::PingPong && problem.is_gathered() => 1,
        () if decodes_tokens(problem, variant) && consumers <= 2 && variant.fusion != Fusion::PingPong => 7,
        () if decodes_tokens(problem, variant) || problem.is_gathered() => 3,
        () => 0,
    }
}

/// Tensor maps with the 128-byte swizzle, and so stages, begin at multiples of this.
const STAGE_ALIGNMENT: u32 = 1024;
const ALIGNMENT: u32 = 128;
/// What weights become e4m3 by (templates/wgmma/decode/e4m3.cuh): 8 bytes for each mantissa, and for each scale that has its
/// own.
const DECODE_BYTES: u32 = 8 * (8 + 58);
/// A row of the grouped schedule's table (`GroupRows`), which is there unsorted and sorted.
const TABLE_ROW: u32 = 24;
/// A tile that is found for others (`FoundTile`).
const FOUND_BYTES: u32 = 16;

/// How the warpgroups of a block share its tile, and where its shared memory lies. The template of the path has the same
/// names and says more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WgmmaLayout {
    /// m64 tiles of one consumer's part of the columns: 2 where it takes one product of each.
    pub(crate) tiles_per_part: u32,
    /// Consumers that share the K of a tile.
    pub(crate) k_groups: u32,
    /// 2 if each product has consumers of its own.
    pub(crate) product_groups: u32,
    /// 2 if two groups of consumers have every second tile, and every second stage, each.
    pub(crate) tile_groups: u32,
    /// Times that the weights of a tile are gone through.
    pub(crate) passes: u32,
    /// Arrivals that complete a phase of the barrier of an empty stage.
    pub(crate) empty_arrivals: u32,
    pub(crate) barriers_offset: u32,
    pub(crate) table_offset: u32,
    pub(crate) scratch_offset: u32,
    /// Of each tile group.
    pub(crate) scratch_bytes: u32,
    pub(crate) exchange_offset: u32,
    pub(crate) exchange_bytes: u32,
    /// Of the table that weights become e4m3 by.
    pub(crate) decode_offset: u32,
    /// Of the factors of a tile's tokens, columns and group; not of tokens, where they have theirs along K.
    pub(crate) factors_offset: u32,
    /// Of the factors of tokens along K, of all stages.
    pub(crate) k_factors_offset: u32,
    /// A tile is loaded and multiplied only as wide as its rows need.
    pub(crate) ragged: bool,
    /// There are registers for five widths, as each stages its own sums.
    pub(crate) many_widths: bool,
    /// A last tile that is not whole has a box of tokens as high as its rows. Not in persistent blocks: they have many tiles, and
    /// no registers to spare; nor of groups, whose last rows alone end where A does.
    pub(crate) has_few: bool,
    /// A warp of its own stores the tiles of a persistent block, and finds them for those who multiply: where.
    pub(crate) stores_apart: bool,
    pub(crate) found_offset: u32,
    /// Warps of each tile group that bring tokens into shared memory by themselves, if any do.
    pub(crate) token_warps: u32,
    /// What they bring is NVFP4, which they decode.
    pub(crate) decodes_tokens: bool,
    /// How a warpgroup goes along K.
    pub(crate) stage: Stage,
    /// m64 tiles of weights.
    pub(crate) tiles: u32,
    /// Parts of a tile's tokens, of which a warpgroup that multiplies has one.
    pub(crate) token_parts: u32,
    /// Parts of a warpgroup's tokens that are multiplied one after the other.
    pub(crate) sum_parts: u32,
    /// Lines of decoded weights in shared memory, and where: none, if they are decoded into registers.
    pub(crate) decoded_slots: u32,
    pub(crate) decoded_offset: u32,
    /// Registers of threads, where those at the launch are too few.
    pub(crate) shifted: Option<Shifted>,
}

/// Columns of C that an m64 tile of prepared weights stands for.
pub(crate) fn tile_columns(problem: &Problem) -> u32 {
    64 / problem.operation().products()
}

/// Lines of decoded weights: as many as this many bytes hold, but a line for each warp that decodes, and two.
const DECODED_BYTES: u32 = 64 * 1024;
const DECODED_SLOTS_MIN: u32 = 2;
/// Rows of an m64 tile, and bytes of a line.
const DECODED_TILE_BYTES: u32 = 64 * 128;

/// Lines of decoded weights that are kept of a tile.
fn decoded_slots(tiles: u32, decoders: u32) -> u32 {
    (DECODED_BYTES / (tiles * DECODED_TILE_BYTES)).max((4 * decoders).div_ceil(tiles)).max(DECODED_SLOTS_MIN)
}

/// As in [`WgmmaLayout`].
pub(crate) fn tiles_per_part(fusion: Fusion) -> u32 {
    match fusion {
        Fusion::TwoPass | Fusion::Sequential | Fusion::PerProduct => 2,
        Fusion::Single | Fusion::Interleaved | Fusion::PingPong => 1,
    }
}

/// How a fusion shares the work of a block among its consumers.
pub(super) struct Sharing {
    /// As in [`WgmmaLayout`], whose fields these become.
    pub(super) tiles_per_part: u32,
    product_groups: u32,
    /// As in [`WgmmaLayout`].
    pub(super) tile_groups: u32,
    passes: u32,
    /// Parts of the columns.
    parts: u32,
    /// As in [`WgmmaLayout`].
    pub(super) token_parts: u32,
    /// Consumers without which there is nobody for some part of the work.
    pub(super) needed: u32,
    /// Consumers that there are.
    pub(super) consumers: u32,
}

impl Sharing {
    pub(super) fn new(variant: &Variant, tiles: u32) -> Self {
        let tiles_per_part = tiles_per_part(variant.fusion);
        let (product_groups, tile_groups, passes) = match variant.fusion {
            Fusion::Single | Fusion::Interleaved | Fusion::TwoPass => (1, 1, 1),
            Fusion::Sequential => (1, 1, 2),
            Fusion::PerProduct => (2, 1, 1),
            Fusion::PingPong => (1, 2, 1),
        };
        let parts = tiles.div_ceil(tiles_per_part);
        let needed = parts * product_groups * tile_groups;
        let consumers = variant.warps.consumers().unwrap_or(needed);
        // Those that the columns do not need share tokens where weights are decoded for all of them, else K.
        let token_parts = if variant.warps.decoders() > 0 { (consumers / needed).max(1) } else { 1 };
        Self { tiles_per_part, product_groups, tile_groups, passes, parts, token_parts, needed, consumers }
    }
}

/// Bytes of 64 rows × 64 columns of prepared weights.
pub(super) fn block_bytes(problem: &Problem) -> u32 {
    let coding = if problem.is_expanded() { Coding::Expanded } else { Coding::E4m3 };
    PreparedLayout::block_bytes_of(coding, problem.b_format()) as u32
}

/// Whether the matrix kernel itself decodes NVFP4 tokens.
pub(super) fn decodes_tokens(problem: &Problem, variant: &Variant) -> bool {
    problem.a_format() == Format::Nvfp4 && !variant.prepass
}

/// Sizes of a block.
pub(in crate::path) fn geometry(problem: &Problem, variant: &Variant) -> Geometry {
    let Tile { tokens, columns, k } = variant.tile;
    let tiles = (columns / tile_columns(problem)).max(1);
    let Sharing { tiles_per_part, product_groups, tile_groups, passes, parts, token_parts, needed, consumers } =
        Sharing::new(variant, tiles);
    let k_groups = (consumers / needed / token_parts).max(1);
    let decoders = variant.warps.decoders();
    let sums = if matches!(variant.fusion, Fusion::Sequential | Fusion::PerProduct) { 2 } else { 1 };

    let blocks = k / K_BLOCK;
    let rounds = problem.compute_format() == Format::E4m3;
    let token_format = if rounds { Format::E4m3 } else { Format::F16 };
    let stage_bytes =
        (rows_bytes(token_format, tokens, k) + tiles * blocks * block_bytes(problem)).next_multiple_of(STAGE_ALIGNMENT);
    let ring = variant.stages.saturating_mul(stage_bytes);
    let consumers = needed * k_groups * token_parts;
    let token_warps = token_warps(problem, variant, consumers);
    let decodes_tokens = decodes_tokens(problem, variant);

    let group_threads = 128 * parts * product_groups;
    let splits = variant.cluster.splits();
    // fp32 sums of all threads but those of the first K group; of the second product; the tile of C.
    let added = (k_groups - 1) * sums * (tokens / 2) * group_threads * 4;
    let handed_over = if product_groups == 2 { tokens / 2 * 128 * parts * 4 } else { 0 };
    let staged = match variant.epilogue {
        _ if variant.needs_finish() => 0,
        Epilogue::Direct => 0,
        Epilogue::Shared | Epilogue::Tma => {
            (problem.c_format().bytes(columns as usize) as u32 + 16) * tokens.div_ceil(splits)
        }
    };
    let scratch_bytes = added.max(handed_over).max(staged).next_multiple_of(ALIGNMENT);
    let exchange_bytes =
        if splits == 1 { 0 } else { (splits - 1) * sums * (tokens / 8 / splits).max(1) * group_threads * 16 };

    let decoded_slots = if decoders > 0 { decoded_slots(tiles, decoders) } else { 0 };
    let behind_ring = ring.saturating_add(decoded_slots * tiles * DECODED_TILE_BYTES);
    // A barrier's address tells its slot (templates/wgmma/pipeline.cuh).
    let barriers_offset =
        behind_ring.max(if variant.persistent { 0 } else { scratch_bytes.next_multiple_of(STAGE_ALIGNMENT) });
    let pairs = if decoders > 0 { 2 * variant.stages + decoded_slots } else { variant.stages };
    let barrier_bytes = (16 * pairs + 16).next_multiple_of(ALIGNMENT);
    let table_offset = barriers_offset.saturating_add(barrier_bytes);
    let behind_table = table_offset.saturating_add(problem.groups().map_or(0, |groups| 2 * TABLE_ROW * groups));
    let k_factors = problem.has_k_factors();
    // Sums that are scaled leave no registers for another width, nor do two sums of every token where others decode.
    let is_ragged = problem.groups().is_some()
        && tiles_per_part == 1
        && tokens >= RAGGED_TOKENS
        && !decodes_tokens
        && !k_factors
        && decoders == 0
        && variant.cluster.multicast() == 1;
    // The ring is free for other use only where no further tile is being loaded.
    let (scratch_offset, behind_scratch) = if variant.persistent {
        let offset = behind_table.next_multiple_of(ALIGNMENT);
        (offset, offset.saturating_add(tile_groups * scratch_bytes))
    } else {
        (0, behind_table)
    };
    let exchange_offset = behind_scratch.next_multiple_of(ALIGNMENT);

    let decode_offset = exchange_offset.saturating_add(exchange_bytes).next_multiple_of(ALIGNMENT);
    let factors_offset = decode_offset.saturating_add(if problem.is_expanded() { 0 } else { DECODE_BYTES });
    let held = problem.operation().products() * (columns + 1) + if k_factors { 0 } else { tokens };
    let behind_factors = factors_offset.saturating_add(tile_groups * (4 * held).next_multiple_of(8));
    let k_factors_offset = behind_factors.next_multiple_of(ALIGNMENT);
    let shared_bytes = match rounds {
        true if k_factors => {
            let line = 4 * tokens.next_multiple_of(FACTOR_TOKENS);
            k_factors_offset.saturating_add(variant.stages.saturating_mul(line * (blocks / K_BLOCKS_OF_LINE).max(1)))
        }
        true => behind_factors,
        false => exchange_offset.saturating_add(exchange_bytes),
    };

    let of = |token_warps: u32, stores_apart, is_ragged| Work {
        problem,
        variant,
        sums,
        tiles_per_part,
        token_parts,
        consumers,
        k_groups,
        token_warps,
        producer_warps: match variant.warps {
            Warps::Uniform => 0,
            Warps::Specialised(_) | Warps::Decoding { .. } => tile_groups * (1 + token_warps.max(1)),
        },
        stores_apart,
        is_ragged,
    };
    // Nobody else uses scratch memory then, and there are registers.
    let is_plain = k_groups == 1 && tiles_per_part == 1 && !(problem.is_gathered() && problem.bias_format().is_some());
    let may_store_apart = variant.persistent && variant.epilogue == Epilogue::Shared && is_plain;
    // Of three that gather rows it takes one's place.
    let beside = if problem.is_gathered() { token_warps.min(2) } else { token_warps };
    let at_ease = |is_ragged| {
        let work = of(beside, true, is_ragged);
        work.registers_at_ease().map(|registers| (work, registers))
    };
    // Of e4m3 values in one width, if there are no registers for more.
    let in_one_width = || if rounds && is_ragged { at_ease(false) } else { None };
    let apart = if may_store_apart { at_ease(is_ragged).or_else(in_one_width) } else { None };
    let stores_apart = apart.is_some();
    let (work, registers) = apart.unwrap_or_else(|| {
        // Sums of e4m3 values are in twice as many registers: ptxas serialises their instructions (C7520).
        let work = of(token_warps, false, is_ragged && !(rounds && variant.persistent));
        let registers = work.registers();
        (work, registers)
    });
    let found_offset = shared_bytes.next_multiple_of(FOUND_BYTES);
    let shared_bytes =
        if stores_apart { found_offset.saturating_add(2 * tile_groups * FOUND_BYTES) } else { shared_bytes };
    Geometry {
        threads: if registers.shifted.is_some() { work.shifted_threads() } else { work.threads() },
        stage_bytes,
        shared_bytes,
        accumulators: registers.accumulators,
        registers: registers.needed,
        blocks_per_sm: 1,
        layout: Layout::Wgmma(WgmmaLayout {
            tiles_per_part,
            k_groups,
            product_groups,
            tile_groups,
            passes,
            empty_arrivals: variant.cluster.multicast() * 4 * parts * token_parts * product_groups,
            barriers_offset,
            table_offset,
            scratch_offset,
            scratch_bytes,
            exchange_offset,
            exchange_bytes,
            decode_offset,
            factors_offset,
            k_factors_offset,
            ragged: work.is_ragged,
            many_widths: stores_apart
                && consumers <= 2
                && problem.bias_format().is_none()
                && (!rounds || tokens >= FIVE_HALVED_TOKENS),
            has_few: problem.groups().is_none() && !variant.persistent && variant.cluster.multicast() == 1,
            stores_apart,
            found_offset,
            token_warps: work.token_warps,
            decodes_tokens,
            stage: registers.stage,
            tiles,
            token_parts,
            sum_parts: registers.sum_parts,
            decoded_slots,
            decoded_offset: ring,
            shifted: registers.shifted,
        }),
    }
}

/// Tiles of columns come first: their blocks share tokens, which a cluster may multicast.
pub(in crate::path) fn grid(variant: &Variant) -> Grid {
    let cluster = match variant.cluster {
        Cluster::Multicast(blocks) => [blocks, 1, 1],
        cluster => [1, 1, cluster.splits()],
    };
    Grid { tokens_first: false, cluster }
}

/// Whether its kernels wait for what came before by themselves, so that they may begin under it: they do.
pub(in crate::path) fn can_depend() -> bool {
    true
}

/// Narrower tiles are cheaper to load and multiply whole than to look at.
const RAGGED_TOKENS: u32 = 64;
/// Above, ragged tiles come in other widths, and above the second in fewer.
const TALL_TOKENS: u32 = 160;
const TALLEST_TOKENS: u32 = 192;
/// Of e4m3 values in halves tiles with fewer have no five widths: those are multiples of 16.
const FIVE_HALVED_TOKENS: u32 = 128;

impl WgmmaLayout {
    /// As if tokens were multiplied in halves, and by lines: the less of each is what no kernel undercuts that decodes into registers.
    pub(crate) fn in_halves_or_lines(self) -> [Self; 2] {
        [Stage::Halves, Stage::Lines].map(|stage| Self { stage, ..self })
    }

    /// As if others decoded the weights, at no cost that depends on how many: what no such kernel undercuts.
    pub(crate) fn decoded(self) -> Self {
        Self { stage: Stage::Decoded, token_parts: 1, sum_parts: 1, k_groups: 1, ..self }
    }

    /// Whether tokens are e4m3, and so is what weights become.
    pub(crate) fn rounds(&self) -> bool {
        self.stage != Stage::Half
    }

    /// The widths, in tokens, that a tile may be multiplied in, ascending: the first that holds its rows is taken. A group
    /// that is divided evenly has no tiles below half of TOKENS, but tall tiles are for groups that are not divided. Each
    /// width is code, which takes time to compile (a tall one more), and in a persistent kernel whose widths bring their sums
    /// together registers, where they are scarce: with 128 tokens a fourth width costs 20 %, with 192 it gains 5, with 200 it
    /// costs 3.
    pub(crate) fn widths(&self, variant: &Variant) -> impl Iterator<Item = u32> + use<> {
        let tokens = variant.tile.tokens;
        let step = self.width_step();
        self.sixteenths(variant).iter().map(move |sixteenths| part_width(tokens, *sixteenths, step))
    }

    /// The same as shares of the tile.
    pub(crate) fn sixteenths(&self, variant: &Variant) -> &'static [u32] {
        let tokens = variant.tile.tokens;
        match (self.ragged, variant.persistent) {
            (false, _) => &[16],
            (true, _) if self.rounds() && self.many_widths && tokens > TALL_TOKENS => &[4, 7, 10, 13, 16],
            (true, _) if self.many_widths && tokens <= TALL_TOKENS => &[8, 10, 12, 14, 16],
            (true, _) if self.rounds() => &[8, 12, 16],
            (true, _) if tokens > TALLEST_TOKENS => &[6, 13, 16],
            (true, _) if tokens > TALL_TOKENS => &[6, 10, 14, 16],
            (true, true) => &[8, 12, 16],
            (true, false) => &[8, 10, 12, 14, 16],
        }
    }

    /// Widths are multiples of this: each half is, of what an instruction takes.
    pub(crate) fn width_step(&self) -> u32 {
        if self.stage == Stage::Halves { 16 } else { 8 }
    }
}
