//! Registers of the threads of a block: how a warpgroup goes along K with those that it has, and which change hands.
//!
//! ptxas gives every thread as many as all have at the launch, unless `setmaxnreg` says otherwise; with too few it spills, or lets
//! products wait for each other. What is said here is measured by its machine code.

use crate::arch::Arch;
use crate::format::Format;
use crate::path::geometry::K_BLOCK;
use crate::path::{Epilogue, Fusion, Tile, Variant, Warps};
use crate::problem::Problem;

/// Beside the accumulators, as measured: half a K block or two whole ones of A fragments, a block's codes and scales, addresses; the
/// deeper a stage, the more the compiler has under way. Of e4m3 values a whole K block takes as many as half of one does.
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

/// 64 of K in a line of 128 e4m3 values.
pub(super) const K_BLOCKS_OF_LINE: u32 = 2;
/// Factors along K come for so many tokens at a time.
pub(super) const FACTOR_TOKENS: u32 = 16;
/// Up to so many tokens addresses and the like of e4m3 kernels are a larger part.
const FEW_TOKENS: u32 = 32;
/// From this many tokens on half a K block of A fragments is held at a time, not a whole one.
const WIDE_TOKENS: u32 = 192;
/// Along K, two lines of 128 e4m3 values, which have registers in turn.
const LINES_K: u32 = 256;
/// For factors along K: of 128 of K, and where fewer are decoded at a time or tall tiles leave no others.
const FACTORS_OF_LINES: u32 = 12;
const FACTORS_REGISTERS: u32 = FACTOR_TOKENS;
/// Beside the accumulators, where 128 of K are decoded at a time: A fragments of two such lines, and the rest as elsewhere.
const LINES_REGISTERS: u32 = 60;
/// With more, a block of one warpgroup that multiplies is alone on an SM.
const LINES_REGISTERS_MAX: u32 = 168;
/// Of two warpgroups that multiply lines and one that loads.
const LINES_HANDED_OVER: (u32, u32) = (232, 40);
/// Most tokens of three; with more they spill, and where results are stored directly, are f32 or have slots.
const LINES_OF_THREE_TOKENS: u32 = 80;
/// Of two that multiply e4m3 values and one that gathers their rows: with two warps, where another stores; with three, or if who multiplies needs
/// more; if they need more still. Of those with two warps slots need so many more.
const GATHERED_HANDED_OVER: [(u32, u32); 3] = [(200, 104), (208, 88), (216, 72)];
const GATHERED_SLOTS: u32 = 16;
/// With more tokens than this there are no registers for two sums of each; from the second on, of stages of 128 of K, one warpgroup
/// more is worth more than two lines' fragments; with factors along K there are none for those.
const SUM_TOKENS: u32 = 128;
const HALVED_TOKENS: u32 = 96;
/// Halves are of a multiple of 8 tokens.
pub(super) const HALVES_STEP: u32 = 16;
/// Beside the accumulators, where tokens are multiplied in two halves: A fragments of one line, and the rest as elsewhere.
const HALVES_REGISTERS: u32 = 36;
/// More of these where rows are grouped or gathered; of four warpgroups whose rows are gathered; and what all of them may be at the launch
/// then: above, ptxas spills in one epilogue or another.
const HALVES_OF_GROUPS: u32 = 16;
const HALVES_OF_GATHERED: u32 = 8;
const HALVES_OF_GROUPS_MAX: u32 = 208;
/// More where sums of groups are added up among warpgroups that share K, of e4m3 values.
const SHARED_K_REGISTERS: u32 = 56;
/// 16-bit tiles with more tokens are wide: ptxas has too few registers. In ragged groups those with fewer are, by the depth of a stage, and
/// where rows have slots.
pub(super) const WIDEST_TOKENS: u32 = 208;
/// Beside the accumulators of four warpgroups that have a ragged tile: half a K block of A fragments is held at a time (templates/wgmma/stage/half.cuh).
const HALF_BLOCK_REGISTERS: u32 = 46;
/// More of three and of four such, or products wait for each other all the same; of four that store by themselves, too.
const SPARE_OF_THREE: u32 = 40;
const SPARE_OF_FOUR: u32 = 14;
const SPARE_OF_STORING_FOUR: u32 = 22;
/// How many more registers they need where these do not change hands.
const WIDE_REGISTERS: u32 = 46;
/// Beside the accumulators of a warpgroup that multiplies what others decode, addresses and descriptors: at least, and to be at ease.
const DECODED_REGISTERS: (u32, u32) = (32, 32);
/// What a thread takes that decodes at ease.
const DECODING_REGISTERS: u32 = 56;
/// Of threads that decode at least and at most, and of those that load for them, where registers change hands.
const DECODER_REGISTERS: (u32, u32) = (48, 112);
const LOADER_REGISTERS: u32 = 32;
/// Who gathers has an address for each row that it copies, of which a thread of a warp has every so manyth; more where there are factors, and for
/// 16-bit tiles of two warpgroups, or of more.
const GATHERER_REGISTERS: u32 = 36;
const GATHERER_ROWS: u32 = 4;
const GATHERER_FACTORS: u32 = 16;
const GATHERER_OF_WIDE: u32 = 24;
const GATHERER_OF_MANY: u32 = 8;
/// Of who loads, where no rows are gathered. With fewer for three or four warpgroups whose tiles come in several widths ptxas lets their
/// products wait for each other; of one width, stages of 64 leave four room for 128 tokens so.
const LOADER_OF_WIDE: u32 = 32;
const LOADER_OF_MANY: u32 = 40;
/// More for those that multiply, if there are.
const SPARE_REGISTERS: [u32; 3] = [16, 8, 0];
/// Registers change hands between so many warps.
const WARPS_OF_GROUP: u32 = 4;
/// What setmaxnreg gives a thread at most.
const REGISTERS_MAX: u32 = 240;

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

/// Registers of a thread once it knows what it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Shifted {
    /// Before that.
    pub(crate) launch: u32,
    /// Of one that multiplies.
    pub(crate) consumer: u32,
    /// Of one that loads.
    pub(crate) producer: u32,
    /// Of one that decodes, if any do.
    pub(crate) decoder: u32,
}

impl Shifted {
    fn without_decoders((consumer, producer): (u32, u32)) -> Self {
        Self { consumer, producer, ..Self::default() }
    }
}

/// Registers of a thread, and how it goes along K with those.
pub(super) struct Registers {
    pub(super) stage: Stage,
    /// Parts of a warpgroup's tokens that are multiplied one after the other.
    pub(super) sum_parts: u32,
    pub(super) accumulators: u32,
    /// At the launch.
    pub(super) needed: u32,
    /// As in [`WgmmaLayout`](super::geometry::WgmmaLayout).
    pub(super) shifted: Option<Shifted>,
}

/// What the threads of a block have to do.
pub(super) struct Work<'a> {
    pub(super) problem: &'a Problem,
    pub(super) variant: &'a Variant,
    /// Sums of a token that a warpgroup keeps.
    pub(super) sums: u32,
    pub(super) tiles_per_part: u32,
    pub(super) token_parts: u32,
    /// Warpgroups that multiply, of which so many share the K of a tile.
    pub(super) consumers: u32,
    pub(super) k_groups: u32,
    /// Warps of a tile group that bring tokens by themselves, and all that load.
    pub(super) token_warps: u32,
    pub(super) producer_warps: u32,
    /// One warp more only stores.
    pub(super) stores_apart: bool,
    /// A tile is multiplied only as wide as its rows need.
    pub(super) is_ragged: bool,
}

impl Work<'_> {
    pub(super) fn registers(&self) -> Registers {
        let Variant { tile, warps, .. } = *self.variant;
        if warps.decoders() > 0 {
            return self.decoded();
        }
        if self.problem.compute_format() != Format::E4m3 {
            return self.half();
        }
        let tokens = tile.tokens;
        let has_lines = tile.k == K_BLOCKS_OF_LINE * K_BLOCK;
        let is_halved = tokens > SUM_TOKENS
            || ((self.has_k_factors() || has_lines) && tokens >= HALVED_TOKENS)
            || (has_lines && self.may_be_four());
        let may_halve = self.tiles_per_part == 1
            && (!self.is_ragged || self.stores_apart)
            && is_halved
            && tokens.is_multiple_of(HALVES_STEP);
        let halves = may_halve.then(|| self.halves()).flatten();
        let may_have_lines =
            tile.k == LINES_K && self.tiles_per_part == 1 && !self.is_ragged && warps != Warps::Uniform;
        let lines = || may_have_lines.then(|| self.lines()).flatten();
        halves.or_else(lines).unwrap_or_else(|| self.rounded())
    }

    /// Sums of all tokens that a thread keeps.
    fn totals(&self) -> u32 {
        self.sums * self.variant.tile.tokens / 2
    }

    /// Rows are grouped or gathered.
    fn moves_rows(&self) -> bool {
        self.problem.groups().is_some() || self.problem.is_gathered()
    }

    fn has_k_factors(&self) -> bool {
        self.problem.has_k_factors()
    }

    /// So many, if there are factors along K.
    fn factors(&self, registers: u32) -> u32 {
        if self.has_k_factors() { registers } else { 0 }
    }

    /// More of e4m3 values, if sums of groups are added up among warpgroups.
    fn shared(&self) -> u32 {
        if self.k_groups > 1 && self.moves_rows() { SHARED_K_REGISTERS } else { 0 }
    }

    fn at_launch(&self, threads: u32) -> u32 {
        Arch::H200.registers_per_thread(threads)
    }

    fn fits(&self, needed: u32) -> bool {
        needed <= self.at_launch(self.threads())
    }

    /// Two warpgroups stage tiles that come in many widths: with what all have at the launch ptxas serialises their products.
    fn has_widths(&self) -> bool {
        self.is_ragged && self.stores_apart && self.consumers == 2
    }

    /// If threads have what they need where a warp of its own stores tiles; of e4m3 values those in halves alone gain by several widths.
    pub(super) fn registers_at_ease(&self) -> Option<Registers> {
        let registers = self.registers();
        if self.is_ragged && self.problem.compute_format() == Format::E4m3 && registers.stage != Stage::Halves {
            return None;
        }
        let is_at_ease = match registers.shifted {
            // Who stores is one of the warpgroup that loads.
            Some(_) => self.producer_warps < WARPS_OF_GROUP,
            None => self.fits(registers.needed),
        };
        is_at_ease.then_some(registers)
    }

    /// Of the warpgroups that multiply or decode.
    fn working_threads(&self) -> u32 {
        128 * (self.consumers + self.variant.warps.decoders())
    }

    pub(super) fn threads(&self) -> u32 {
        self.working_threads() + 32 * (self.producer_warps + u32::from(self.stores_apart))
    }

    /// The same where registers change hands, between whole warpgroups.
    pub(super) fn shifted_threads(&self) -> u32 {
        self.working_threads() + 32 * WARPS_OF_GROUP
    }

    /// What a thread has that gathers, with so many registers beside the addresses of rows.
    fn gatherer(&self, beside: u32) -> u32 {
        (GATHERER_REGISTERS + 2 * self.variant.tile.tokens.div_ceil(GATHERER_ROWS * self.token_warps) + beside)
            .next_multiple_of(8)
    }

    /// With others' registers, which the threads of a whole warpgroup give away.
    fn shifted(&self, stage: Stage, accumulators: u32, shifted: Shifted) -> Registers {
        let needed = self.at_launch(self.shifted_threads());
        Registers { shifted: Some(Shifted { launch: needed, ..shifted }), ..self.kept(stage, accumulators, needed) }
    }

    /// Who loads is one warpgroup then. Tall tiles of three and four would spill.
    fn may_shift(&self) -> bool {
        let is_one = self.variant.warps != Warps::Uniform && self.producer_warps <= WARPS_OF_GROUP;
        let is_known = self.consumers == 2 || self.variant.tile.tokens <= SUM_TOKENS;
        is_one && self.tiles_per_part == 1 && self.consumers >= 2 && self.k_groups == 1 && is_known
    }

    /// What those that multiply have when who loads keeps what it needs.
    fn handed_over(&self) -> Shifted {
        let producer = match (self.problem.is_gathered(), self.consumers) {
            (true, 2) if !self.stores_apart => self.gatherer(GATHERER_OF_WIDE),
            (true, _) => self.gatherer(GATHERER_OF_MANY),
            (false, 2) if self.stores_apart => LOADER_OF_MANY,
            (false, consumers) if consumers == 2 || self.is_large() => LOADER_OF_WIDE,
            (false, _) => LOADER_OF_MANY,
        };
        let warpgroups = self.consumers + 1;
        let consumer = (warpgroups * self.at_launch(self.shifted_threads()) - producer) / self.consumers / 8 * 8;
        Shifted::without_decoders((consumer.min(REGISTERS_MAX), producer))
    }

    /// Four warpgroups have a tile of one width, with stages of 64, and nobody decodes tokens for them. With slots they spill.
    fn is_large(&self) -> bool {
        let is_plain = self.variant.fusion != Fusion::PingPong && self.token_warps == 0 && !self.problem.has_slots();
        is_plain && !self.is_ragged && self.consumers == 4 && self.variant.tile.k == K_BLOCK
    }

    fn kept(&self, stage: Stage, accumulators: u32, needed: u32) -> Registers {
        let sum_parts = if stage == Stage::Halves { 2 } else { 1 };
        Registers { stage, sum_parts, accumulators, needed, shifted: None }
    }

    /// Three or four warpgroups have tiles that come in several widths, one after the other.
    fn is_crowded(&self) -> bool {
        self.is_ragged
            && self.variant.persistent
            && self.consumers > 2
            && self.k_groups == 1
            && self.tiles_per_part == 1
    }

    /// Whether ptxas has too few registers for 16-bit values, if all threads have as many.
    fn is_wide(&self) -> bool {
        let Tile { tokens, k, .. } = self.variant.tile;
        match k {
            _ if !self.moves_rows() => tokens > WIDEST_TOKENS,
            _ if !self.is_ragged => false,
            _ if self.is_crowded() || self.has_widths() => true,
            256 => tokens >= HALVED_TOKENS,
            _ if self.problem.has_slots() => tokens >= SUM_TOKENS,
            128 => tokens > SUM_TOKENS,
            _ => tokens > if self.consumers > 2 { SUM_TOKENS } else { WIDEST_TOKENS },
        }
    }

    /// 16-bit values.
    fn half(&self) -> Registers {
        let Variant { tile, warps, .. } = *self.variant;
        let accumulators = self.totals();
        let is_wide = self.is_wide();
        let is_crowded = self.is_crowded();
        let needed = accumulators
            + match (tile.k, self.consumers) {
                (..=128, 4) if is_crowded => HALF_BLOCK_REGISTERS,
                _ => working_registers(tile, false, self.tiles_per_part),
            };
        if !is_wide && self.fits(needed) {
            return self.kept(Stage::Half, accumulators, needed);
        }
        // Above, and of gathered rows with slots, registers are spilled all the same.
        let few = tile.tokens <= WIDEST_TOKENS && !(self.problem.is_gathered() && self.problem.has_slots());
        let shifted = self.handed_over();
        let spare = match self.consumers {
            _ if !is_crowded => 0,
            3 => SPARE_OF_THREE,
            _ if self.variant.epilogue == Epilogue::Direct => SPARE_OF_STORING_FOUR,
            _ => SPARE_OF_FOUR,
        };
        if self.may_shift() && (few || !self.moves_rows()) && needed + spare <= shifted.consumer {
            return self.shifted(Stage::Half, accumulators, shifted);
        }
        let more = if is_wide && warps != Warps::Uniform { WIDE_REGISTERS } else { 0 };
        self.kept(Stage::Half, accumulators, needed + more)
    }

    /// Whether four warpgroups that have no registers for whole tiles have some for halves: of groups, in blocks that stay and whose tiles
    /// come by shared memory; others spill.
    fn may_be_four(&self) -> bool {
        let Variant { fusion, persistent, .. } = *self.variant;
        let is_one = matches!(fusion, Fusion::Single | Fusion::Interleaved);
        let is_grouped = self.problem.groups().is_some() && persistent && self.stages_rows_in_order();
        is_grouped && is_one && self.consumers == 4 && !self.fits(self.rounded().needed)
    }

    /// Whether results come by shared memory, and their rows lie as those of the tile do.
    fn stages_rows_in_order(&self) -> bool {
        self.variant.epilogue != Epilogue::Direct && !self.problem.has_slots()
    }

    /// e4m3 values, 64 of K at a time. What an instruction adds to is not yet what is kept.
    fn rounded(&self) -> Registers {
        let accumulators = 2 * self.totals();
        let working = working_registers(self.variant.tile, true, self.tiles_per_part);
        let needed = accumulators + working + self.factors(FACTORS_REGISTERS) + self.shared();
        self.kept(Stage::Rounded, accumulators, needed)
    }

    /// Of two warpgroups that multiply e4m3 values with so many registers, and of the one that loads.
    fn handed_over_to_two(&self, needed: u32) -> (u32, u32) {
        if !self.problem.is_gathered() {
            return LINES_HANDED_OVER;
        }
        let [two, usual, most] = GATHERED_HANDED_OVER;
        match self.stores_apart {
            // Without slots, who needs more does not leave storing to another.
            true if !self.problem.has_slots() || needed + GATHERED_SLOTS <= two.0 => two,
            false if needed > usual.0 => most,
            _ => usual,
        }
    }

    /// 128 of K at a time, if there are registers for it, or can be.
    fn lines(&self) -> Option<Registers> {
        let accumulators = 2 * self.totals();
        let needed = accumulators + LINES_REGISTERS + self.factors(FACTORS_OF_LINES) + self.shared();
        if needed <= LINES_REGISTERS_MAX && self.fits(needed) {
            return Some(self.kept(Stage::Lines, accumulators, needed));
        }
        let shifted = match self.consumers {
            2 => Shifted::without_decoders(self.handed_over_to_two(needed)),
            3 if self.may_be_three() => self.handed_over(),
            _ => return None,
        };
        let is_short = !self.moves_rows() || (self.variant.persistent && self.k_groups == 1);
        let may_shift = is_short && needed <= shifted.consumer;
        may_shift.then(|| self.shifted(Stage::Lines, accumulators, shifted))
    }

    /// Whether three warpgroups that multiply lines have enough of those that one gives away that loads.
    fn may_be_three(&self) -> bool {
        let is_low = self.variant.tile.tokens <= LINES_OF_THREE_TOKENS && self.problem.c_format() != Format::F32;
        is_low && self.stages_rows_in_order() && self.may_shift()
    }

    /// Half of the tokens at a time, if there are registers for it, or can be.
    fn halves(&self) -> Option<Registers> {
        let accumulators = self.totals() + self.totals() / 2;
        let moves_rows = self.moves_rows();
        let moved = match () {
            () if !moves_rows => 0,
            () if self.problem.is_gathered() && self.consumers == 4 => HALVES_OF_GATHERED,
            () => HALVES_OF_GROUPS,
        };
        let working = accumulators + HALVES_REGISTERS + moved;
        let needed = working + self.factors(FACTORS_OF_LINES) + self.shared();
        if self.fits(needed) && (needed <= HALVES_OF_GROUPS_MAX || !moves_rows) && !self.has_widths() {
            return Some(self.kept(Stage::Halves, accumulators, needed));
        }
        // Sums that are added up outside of a thread leave too few.
        if self.k_groups > 1 || (self.variant.split_k > 1 && moves_rows) {
            return None;
        }
        let needed = working + self.factors(FACTORS_REGISTERS);
        let shifted = Shifted::without_decoders(match (self.consumers, self.problem.is_gathered()) {
            (2, false) if !self.stores_apart => (240, 24),
            (2, _) => self.handed_over_to_two(needed),
            (3, false) => (160, 32),
            (3, true) => (144, 80),
            (4, false) => (112, 32),
            (4, true) => (104, 64),
            _ => return None,
        });
        (needed <= shifted.consumer).then(|| self.shifted(Stage::Halves, accumulators, shifted))
    }

    /// What others have decoded.
    fn decoded(&self) -> Registers {
        let own_tokens = self.variant.tile.tokens / self.token_parts;
        let sum_parts = if own_tokens > SUM_TOKENS { 2 } else { 1 };
        let accumulators = own_tokens / 2 + own_tokens / 2 / sum_parts;
        let factors = self.factors(FACTORS_OF_LINES);
        let (least, ease) = (DECODED_REGISTERS.0 + factors, DECODED_REGISTERS.1 + factors);
        let needed = (accumulators + ease).max(DECODING_REGISTERS);
        let shifted = if self.fits(needed) { None } else { self.shared_out(accumulators + least) };
        let registers = match shifted {
            Some(shifted) => self.shifted(Stage::Decoded, accumulators, shifted),
            None => self.kept(Stage::Decoded, accumulators, needed),
        };
        Registers { sum_parts, ..registers }
    }

    /// How the registers that a block has at the launch are shared out to its warpgroups, some of which decode, if threads that multiply get
    /// those that they need.
    fn shared_out(&self, needed: u32) -> Option<Shifted> {
        let (consumers, decoders) = (self.consumers, self.variant.warps.decoders());
        let warpgroups = consumers + decoders + 1;
        let all = warpgroups * self.at_launch(self.shifted_threads());
        let is_gathered = self.problem.is_gathered();
        let producer = if is_gathered { self.gatherer(self.factors(GATHERER_FACTORS)) } else { LOADER_REGISTERS };
        SPARE_REGISTERS.iter().find_map(|spare| {
            let consumer = (needed + spare).next_multiple_of(8);
            let decoder = all.checked_sub(consumers * consumer + producer)? / decoders / 8 * 8;
            let (least, most) = DECODER_REGISTERS;
            let decoder = (decoder >= least).then_some(decoder.min(most))?;
            let consumer = ((all - producer - decoders * decoder) / consumers / 8 * 8).min(REGISTERS_MAX);
            Some(Shifted { consumer, producer, decoder, ..Shifted::default() })
        })
    }
}
