//! The path `wgmma`: warps that load, warpgroups that compute, and what lies where in shared memory.

use crate::arch::Arch;
use crate::format::{Format, PreparedLayout};
use crate::path::geometry::{Geometry, Grid, K_BLOCK, rows_bytes};
use crate::path::{Cluster, Epilogue, Fusion, Layout, Tile, Variant, Warps};
use crate::problem::Problem;

/// Registers that a thread needs beside its accumulators, as measured: half a K block or two whole ones of A fragments, a
/// block's codes and scales, addresses; the deeper a stage, the more the compiler has under way. Of e4m3 values a whole K block
/// takes as many as half of one does.
fn working_registers(tile: Tile, rounds: bool, tiles_per_part: u32) -> u32 {
    match tile.k {
        // Two m64 tiles are two blocks' codes and scales.
        _ if rounds && tiles_per_part == 2 => 60,
        _ if rounds && tile.tokens <= FEW_TOKENS => 48,
        _ if rounds => 40,
        _ if tile.tokens >= WIDE_TOKENS => 46,
        64 => 46,
        128 => 58,
        _ => 90,
    }
}

/// Warps that bring tokens into shared memory by themselves, beside the one that loads weights, if any do: registers are
/// shared out to warps by fours, and more than two consumers need theirs.
fn token_warps(problem: &Problem, variant: &Variant, consumers: u32) -> u32 {
    match () {
        () if decodes_tokens(problem, variant) && consumers <= 2 => 7,
        () if decodes_tokens(problem, variant) || problem.is_gathered() => 3,
        () => 0,
    }
}

/// Up to so many tokens addresses and the like of e4m3 kernels are a larger part.
const FEW_TOKENS: u32 = 32;
/// Along K, two lines of 128 e4m3 values, which have registers in turn.
const LINES_K: u32 = 256;
const K_BLOCKS_OF_LINE: u32 = 2;
/// Factors along K come for so many tokens at a time.
const FACTOR_TOKENS: u32 = 16;
/// Registers of a thread for those: of 128 of K, and where fewer are decoded at a time or tall tiles leave no others.
const FACTORS_OF_LINES: u32 = 12;
const FACTORS_REGISTERS: u32 = 16;
/// Beside the accumulators, where 128 of K are decoded at a time: A fragments of two such lines, and the rest as elsewhere.
const LINES_REGISTERS: u32 = 60;
/// With more, a block of one warpgroup that multiplies is alone on an SM.
const LINES_REGISTERS_MAX: u32 = 168;
/// Registers of two warpgroups that multiply and one that loads, in place of 3 · 168.
const SHIFTED: Shifted = Shifted { consumer: 232, producer: 40, decoder: 0 };
/// With more tokens than this there are no registers for two sums of each; from the second on, of stages of 128 of K, one warpgroup
/// more is worth more than two lines' fragments; with factors along K there are none for those.
const SUM_TOKENS: u32 = 128;
const HALVED_TOKENS: u32 = 96;
/// Beside the accumulators, where tokens are multiplied in two halves: A fragments of one line, and the rest as elsewhere.
const HALVES_REGISTERS: u32 = 36;
/// More of these where sums of groups are added up among warpgroups that share K.
const SHARED_K_REGISTERS: u32 = 56;
/// More of these where rows are grouped or gathered, and what all of them may be at the launch then: above, ptxas spills in one
/// epilogue or another.
const HALVES_OF_GROUPS: u32 = 16;
const HALVES_OF_GROUPS_MAX: u32 = 208;
/// With more 16-bit tokens than this ptxas lets products wait for each other if all threads have as many registers; in ragged groups
/// with fewer where stages are deep, and it spills where rows have slots.
const WIDEST_TOKENS: u32 = 208;
/// Registers that change hands there, and how many more are needed where they do not.
const WIDE: Shifted = Shifted { consumer: 240, producer: 24, decoder: 0 };
const WIDE_GATHERER_REGISTERS: u32 = GATHERER_REGISTERS + 24;
const WIDE_REGISTERS: u32 = 46;
/// From this many tokens on half a K block of A fragments is held at a time, not a whole one.
const WIDE_TOKENS: u32 = 192;
/// Tensor maps with the 128-byte swizzle, and so stages, begin at multiples of this.
const STAGE_ALIGNMENT: u32 = 1024;
const ALIGNMENT: u32 = 128;
/// What weights become e4m3 by (templates/wgmma/decode/e4m3.cuh): 8 bytes for each mantissa, and for each scale that has its
/// own.
const DECODE_BYTES: u32 = 8 * (8 + 58);
/// A row of the grouped schedule's table (`GroupRows`), which is there unsorted and sorted.
const TABLE_ROW: u32 = 24;

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
    /// 2 if two groups of consumers take turns with the tiles.
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
    /// Of the factors of a tile's tokens and columns; of columns alone, where tokens have theirs along K.
    pub(crate) factors_offset: u32,
    /// Of the factors of tokens along K, of all stages.
    pub(crate) k_factors_offset: u32,
    /// A tile is loaded and multiplied only as wide as its rows need.
    pub(crate) ragged: bool,
    /// A last tile that is not whole has a box of tokens as high as its rows. Not in persistent blocks: they have many tiles, and
    /// no registers to spare; nor of groups, whose last rows alone end where A does.
    pub(crate) has_few: bool,
    /// Warps of the block that bring tokens into shared memory by themselves, if any do.
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

/// Registers of a thread once it knows what it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Shifted {
    /// Of one that multiplies.
    pub(crate) consumer: u32,
    /// Of one that loads.
    pub(crate) producer: u32,
    /// Of one that decodes, if any do.
    pub(crate) decoder: u32,
}

/// How a warpgroup goes along K (templates/wgmma/stage/).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// Of 16-bit values.
    Half,
    /// Of e4m3 values, 64 of K decoded while as many are multiplied.
    Rounded,
    /// The same, 128 of K.
    Lines,
    /// 128 of K, with one half of the tokens and then with the other, whose sums have the same registers.
    Halves,
    /// Of e4m3 values that others have decoded into shared memory.
    Decoded,
}

impl Stage {
    /// Of its template.
    pub(super) fn file(self) -> &'static str {
        match self {
            Stage::Half => "half",
            Stage::Rounded => "e4m3",
            Stage::Lines => "e4m3_lines",
            Stage::Halves => "e4m3_halves",
            Stage::Decoded => "decoded",
        }
    }
}

/// Where the sums of e4m3 values may lie.
struct Rounding {
    /// Sums of every token that are kept.
    totals: u32,
    consumers: u32,
    threads: u32,
    persistent: bool,
    /// Rows are grouped or gathered, or gathered.
    moved: bool,
    gathered: bool,
    /// Rows of C have numbers.
    slots: bool,
    /// Tokens have factors along K.
    k_factors: bool,
    /// Warpgroups share the K of a tile; grids share it over the workspace.
    shares_k: bool,
    splits_k: bool,
}

/// Registers of a thread, and how it goes along K with those.
struct Registers {
    stage: Stage,
    accumulators: u32,
    /// At the launch.
    needed: u32,
    /// As in [`WgmmaLayout`].
    shifted: Option<Shifted>,
}

impl Rounding {
    /// So many, if there are factors along K.
    fn factors(&self, registers: u32) -> u32 {
        if self.k_factors { registers } else { 0 }
    }

    /// So many, if sums of groups' tiles are added up among warpgroups.
    fn shared(&self) -> u32 {
        if self.shares_k && self.moved { SHARED_K_REGISTERS } else { 0 }
    }

    fn at_launch(&self, threads: u32) -> u32 {
        Arch::H200.registers_per_thread(threads)
    }

    /// With others' registers, which the threads of a whole warpgroup give away.
    fn shifted(&self, stage: Stage, accumulators: u32, shifted: Shifted) -> Registers {
        Registers { stage, accumulators, needed: self.at_launch(128 * (self.consumers + 1)), shifted: Some(shifted) }
    }

    /// What threads have once those that load have given away theirs, if there are warpgroups enough for it. Who gathers has an address
    /// for each of its rows.
    fn handed_over(&self) -> Option<Shifted> {
        let (consumer, producer) = match (self.consumers, self.gathered) {
            (2, false) => (240, 24),
            (2, true) => (216, 72),
            (3, false) => (160, 32),
            (3, true) => (144, 80),
            _ => return None,
        };
        Some(Shifted { consumer, producer, decoder: 0 })
    }

    /// 16-bit values. Where tiles are wide, ptxas spills or lets products wait for each other with the registers of all.
    fn half(&self, variant: &Variant, tiles_per_part: u32, is_wide: bool) -> Registers {
        let (stage, accumulators) = (Stage::Half, self.totals);
        let needed = accumulators + working_registers(variant.tile, false, tiles_per_part);
        let is_specialised = variant.warps != Warps::Uniform;
        let plain = matches!(variant.fusion, Fusion::Single | Fusion::Interleaved);
        let may_shift = is_specialised && plain && self.consumers == 2 && !self.shares_k;
        let few = variant.tile.tokens <= WIDEST_TOKENS && !(self.gathered && self.slots);
        let has_room = !self.moved || few;
        let shifted = if self.gathered { wide_gathered(variant.tile.tokens) } else { WIDE };
        match () {
            () if !is_wide && needed <= self.at_launch(self.threads) => {
                Registers { stage, accumulators, needed, shifted: None }
            }
            () if may_shift && has_room && needed <= shifted.consumer => self.shifted(stage, accumulators, shifted),
            () => {
                let more = if is_wide && is_specialised { WIDE_REGISTERS } else { 0 };
                Registers { stage, accumulators, needed: needed + more, shifted: None }
            }
        }
    }

    /// 128 of K at a time, if there are registers for it, or can be.
    fn lines(&self) -> Option<Registers> {
        let accumulators = 2 * self.totals;
        let needed = accumulators + LINES_REGISTERS + self.factors(FACTORS_OF_LINES) + self.shared();
        match () {
            () if needed <= self.at_launch(self.threads).min(LINES_REGISTERS_MAX) => {
                Some(Registers { stage: Stage::Lines, accumulators, needed, shifted: None })
            }
            () if (self.persistent || !self.moved)
                && self.consumers == 2
                && !self.shares_k
                && needed <= SHIFTED.consumer =>
            {
                Some(self.shifted(Stage::Lines, accumulators, SHIFTED))
            }
            () => None,
        }
    }

    /// Half of the tokens at a time, if there are registers for it, or can be.
    fn halves(&self) -> Option<Registers> {
        let accumulators = self.totals + self.totals / 2;
        let working = accumulators + HALVES_REGISTERS + if self.moved { HALVES_OF_GROUPS } else { 0 };
        let needed = working + self.factors(FACTORS_OF_LINES) + self.shared();
        let limit = if self.moved { HALVES_OF_GROUPS_MAX } else { u32::MAX };
        if needed <= self.at_launch(self.threads).min(limit) {
            return Some(Registers { stage: Stage::Halves, accumulators, needed, shifted: None });
        }
        if self.shares_k || (self.splits_k && self.moved) {
            return None;
        }
        let shifted = self.handed_over()?;
        let may_shift = working + self.factors(FACTORS_REGISTERS) <= shifted.consumer;
        may_shift.then(|| self.shifted(Stage::Halves, accumulators, shifted))
    }
}

/// Registers of two warpgroups that multiply and one that gathers so many rows.
fn wide_gathered(rows: u32) -> Shifted {
    let producer = (WIDE_GATHERER_REGISTERS + 2 * rows.div_ceil(GATHERER_ROWS)).next_multiple_of(8);
    Shifted { consumer: (3 * Arch::H200.registers_per_thread(3 * 128) - producer) / 16 * 8, producer, decoder: 0 }
}

/// Columns of C that an m64 tile of prepared weights stands for.
pub(crate) fn tile_columns(problem: &Problem) -> u32 {
    64 / problem.operation().products()
}

/// Beside the accumulators of a warpgroup that multiplies decoded weights, addresses and descriptors: at least, and to be at ease.
const DECODED_REGISTERS: (u32, u32) = (32, 32);
/// What a thread takes that decodes at ease.
const DECODING_REGISTERS: u32 = 56;
/// Of threads that decode at least and at most, and of those that load or gather, where registers change hands.
const DECODER_REGISTERS: (u32, u32) = (48, 112);
const LOADER_REGISTERS: u32 = 32;
/// Who gathers has an address for each row that it copies, of which a thread has every so manyth, and more where there are factors.
const GATHERER_REGISTERS: u32 = 36;
const GATHERER_ROWS: u32 = 12;
const GATHERER_FACTORS: u32 = 16;
/// What setmaxnreg gives a thread at most.
const REGISTERS_MAX: u32 = 240;
/// More for those that multiply, if there are.
const SPARE_REGISTERS: [u32; 3] = [16, 8, 0];
/// Lines of decoded weights: as many as this many bytes hold, but a line for each warp that decodes, and two.
const DECODED_BYTES: u32 = 64 * 1024;
const DECODED_SLOTS_MIN: u32 = 2;
/// Rows of an m64 tile, and bytes of a line.
const DECODED_TILE_BYTES: u32 = 64 * 128;

/// Lines of decoded weights that are kept of a tile.
fn decoded_slots(tiles: u32, decoders: u32) -> u32 {
    (DECODED_BYTES / (tiles * DECODED_TILE_BYTES)).max((4 * decoders).div_ceil(tiles)).max(DECODED_SLOTS_MIN)
}

/// How the registers that a block has at the launch are shared out to its warpgroups, if threads that multiply get those that they need.
fn shared_out(needed: u32, warps: Warps, producer: u32) -> Option<Shifted> {
    let (consumers, decoders) = (warps.consumers()?, warps.decoders());
    let warpgroups = consumers + decoders + 1;
    let all = warpgroups * Arch::H200.registers_per_thread(128 * warpgroups);
    SPARE_REGISTERS.iter().find_map(|spare| {
        let consumer = (needed + spare).next_multiple_of(8);
        let decoder = all.checked_sub(consumers * consumer + producer)? / decoders / 8 * 8;
        let (least, most) = DECODER_REGISTERS;
        let decoder = (decoder >= least).then_some(decoder.min(most))?;
        let consumer = ((all - producer - decoders * decoder) / consumers / 8 * 8).min(REGISTERS_MAX);
        Some(Shifted { consumer, producer, decoder })
    })
}

/// Registers of threads that multiply weights which others decode, and the parts that their tokens are multiplied in.
fn decoded_registers(own_tokens: u32, warps: Warps, threads: u32, producer: u32, factors: u32) -> (Registers, u32) {
    let sum_parts = if own_tokens > SUM_TOKENS { 2 } else { 1 };
    let accumulators = own_tokens / 2 + own_tokens / 2 / sum_parts;
    let (least, ease) = (DECODED_REGISTERS.0 + factors, DECODED_REGISTERS.1 + factors);
    let needed = (accumulators + ease).max(DECODING_REGISTERS);
    let may_shift = needed > Arch::H200.registers_per_thread(threads);
    let shifted = may_shift.then(|| shared_out(accumulators + least, warps, producer)).flatten();
    let of_all = 128 * (warps.consumers().unwrap_or(1) + warps.decoders() + 1);
    let needed = if shifted.is_some() { Arch::H200.registers_per_thread(of_all) } else { needed };
    (Registers { stage: Stage::Decoded, accumulators, needed, shifted }, sum_parts)
}

/// How a fusion shares the work of a block among its consumers.
pub(super) struct Sharing {
    /// As in [`WgmmaLayout`], whose fields these become.
    pub(super) tiles_per_part: u32,
    product_groups: u32,
    tile_groups: u32,
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
        let (tiles_per_part, product_groups, tile_groups, passes) = match variant.fusion {
            Fusion::Single | Fusion::Interleaved => (1, 1, 1, 1),
            Fusion::TwoPass => (2, 1, 1, 1),
            Fusion::Sequential => (2, 1, 1, 2),
            Fusion::PerProduct => (2, 2, 1, 1),
            Fusion::PingPong => (1, 1, 2, 1),
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
    PreparedLayout::block_bytes_of(problem.b_format()) as u32
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
    let barriers_offset = behind_ring.max(if variant.persistent { 0 } else { scratch_bytes });
    let pairs = if decoders > 0 { 2 * variant.stages + decoded_slots } else { variant.stages };
    let barrier_bytes = (16 * pairs + 16).next_multiple_of(ALIGNMENT);
    let table_offset = barriers_offset.saturating_add(barrier_bytes);
    let behind_table = table_offset.saturating_add(problem.groups().map_or(0, |groups| 2 * TABLE_ROW * groups));
    let k_factors = problem.has_k_factors();
    // Sums that are scaled leave no registers for another width, nor do two sums of every token where others decode.
    let is_ragged = problem.groups().is_some()
        && matches!(variant.fusion, Fusion::Single | Fusion::Interleaved | Fusion::PingPong)
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
    let factors_offset = decode_offset.saturating_add(DECODE_BYTES);
    let held = problem.operation().products() * columns + if k_factors { 0 } else { tokens };
    let behind_factors = factors_offset.saturating_add(4 * tile_groups * held);
    let k_factors_offset = behind_factors.next_multiple_of(ALIGNMENT);
    let shared_bytes = match rounds {
        true if k_factors => {
            let line = 4 * tokens.next_multiple_of(FACTOR_TOKENS);
            k_factors_offset.saturating_add(variant.stages.saturating_mul(line * (blocks / K_BLOCKS_OF_LINE).max(1)))
        }
        true => behind_factors,
        false => exchange_offset.saturating_add(exchange_bytes),
    };

    let producers = match variant.warps {
        Warps::Uniform => 0,
        Warps::Specialised(_) | Warps::Decoding { .. } => 32 + 32 * token_warps.max(1),
    };
    let threads = 128 * (consumers + decoders) + producers;
    let totals = sums * tokens / 2;
    let moved = problem.groups().is_some() || problem.is_gathered();
    let gathered = problem.is_gathered();
    let rounding = Rounding {
        totals,
        consumers,
        threads,
        persistent: variant.persistent,
        moved,
        gathered,
        slots: problem.has_slots(),
        k_factors,
        shares_k: k_groups > 1,
        splits_k: variant.split_k > 1,
    };
    let has_one_width = !is_ragged || (variant.persistent && !has_rounded_widths(tokens));
    let is_halved = tokens > SUM_TOKENS || ((k_factors || k == K_BLOCKS_OF_LINE * K_BLOCK) && tokens >= HALVED_TOKENS);
    let is_wide = match k {
        _ if !moved => tokens > WIDEST_TOKENS,
        _ if !is_ragged => false,
        256 => tokens >= HALVED_TOKENS,
        _ if problem.has_slots() => tokens >= SUM_TOKENS,
        128 => tokens > SUM_TOKENS,
        _ => tokens > if consumers > 2 { SUM_TOKENS } else { WIDEST_TOKENS },
    };
    let may_halve = rounds && tiles_per_part == 1 && has_one_width && is_halved && tokens.is_multiple_of(16);
    let may_have_lines = rounds && k == LINES_K && tiles_per_part == 1 && !is_ragged && variant.warps != Warps::Uniform;
    let halves = may_halve.then(|| rounding.halves()).flatten();
    let lines = || may_have_lines.then(|| rounding.lines()).flatten();
    let in_registers = || {
        halves.or_else(lines).unwrap_or_else(|| match rounds {
            // Of e4m3 values, what an instruction adds to is not yet what is kept.
            true => {
                let accumulators = 2 * totals;
                let working = working_registers(variant.tile, true, tiles_per_part);
                let needed = accumulators + working + rounding.factors(FACTORS_REGISTERS) + rounding.shared();
                Registers { stage: Stage::Rounded, accumulators, needed, shifted: None }
            }
            false => rounding.half(variant, tiles_per_part, is_wide),
        })
    };
    let (registers, sum_parts) = if decoders > 0 {
        let addresses = 2 * tokens.div_ceil(GATHERER_ROWS) + rounding.factors(GATHERER_FACTORS);
        let gatherer = (GATHERER_REGISTERS + addresses).next_multiple_of(8);
        let producer = if gathered { gatherer } else { LOADER_REGISTERS };
        decoded_registers(tokens / token_parts, variant.warps, threads, producer, rounding.factors(FACTORS_OF_LINES))
    } else {
        let registers = in_registers();
        let sum_parts = if registers.stage == Stage::Halves { 2 } else { 1 };
        (registers, sum_parts)
    };
    Geometry {
        threads: if registers.shifted.is_some() { 128 * (consumers + decoders + 1) } else { threads },
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
            ragged: is_ragged,
            has_few: problem.groups().is_none() && !variant.persistent && variant.cluster.multicast() == 1,
            token_warps,
            decodes_tokens,
            stage: registers.stage,
            tiles,
            token_parts,
            sum_parts,
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
/// Above, the sums of e4m3 values leave a persistent kernel no registers for another width.
const FEW_ROUNDED_TOKENS: u32 = 96;

/// Whether ragged tiles of e4m3 values come in several widths in persistent blocks.
pub(super) fn has_rounded_widths(tokens: u32) -> bool {
    tokens <= FEW_ROUNDED_TOKENS
}

/// Above, ragged tiles come in other widths, and above the second in fewer.
const TALL_TOKENS: u32 = 160;
const TALLEST_TOKENS: u32 = 192;

impl WgmmaLayout {
    /// As if 128 of K were decoded at a time: what no kernel undercuts that decodes into registers.
    pub(crate) fn in_lines(self) -> Self {
        Self { stage: Stage::Lines, ..self }
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
    /// width is code, which takes time to compile (a tall one more), and in a persistent kernel registers, where they are
    /// scarce: with 128 tokens a fourth width costs 20 %, with 192 it gains 5, with 200 it costs 3. Sums of e4m3 values are in
    /// twice as many registers: with a fourth width ptxas serialises the instructions, in a persistent kernel with a second.
    pub(crate) fn widths(&self, variant: &Variant) -> impl Iterator<Item = u32> + use<> {
        let tokens = variant.tile.tokens;
        let sixteenths: &[u32] = match (self.ragged, variant.persistent) {
            (false, _) => &[16],
            (true, true) if self.rounds() && !has_rounded_widths(tokens) => &[16],
            (true, _) if self.rounds() => &[8, 12, 16],
            (true, _) if tokens > TALLEST_TOKENS => &[6, 13, 16],
            (true, _) if tokens > TALL_TOKENS => &[6, 10, 14, 16],
            (true, true) => &[8, 12, 16],
            (true, false) => &[8, 10, 12, 14, 16],
        };
        sixteenths.iter().map(move |sixteenth| (tokens * sixteenth / 16).next_multiple_of(8))
    }
}
