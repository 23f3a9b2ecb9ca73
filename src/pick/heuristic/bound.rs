//! What no variant of many can undercut: predictions with the best value of whatever is left open.

use super::block::{self, Block};
use super::constants::Constants;
use super::cost::{Around, Device, ends_us, launches, memory_us, power_us, together};
use super::cover::{Cover, Widths};
use crate::format::Format;
use crate::spec::{
    Arch, CONSUMERS_MAX, Cluster, Epilogue, Fusion, Geometry, Layout, Problem, STAGES_MAX, Tile, Variant, Warps,
};

/// Rounding must not make a bound more than what it bounds.
const ROUNDING: f64 = 1.0 - 1e-9;

/// A problem at an M on a device, and what is the same for all its variants.
pub(super) struct Question<'a> {
    pub(super) problem: &'a Problem,
    pub(super) m: u32,
    pub(super) arch: &'a Arch,
    pub(super) constants: &'a Constants,
    memory: f64,
    power: f64,
}

impl<'a> Question<'a> {
    pub(super) fn new(problem: &'a Problem, m: u32, arch: &'a Arch, constants: &'a Constants) -> Self {
        let memory = memory_us(problem, m, arch, constants);
        // Of a call of one microsecond.
        let power = power_us(problem, m, arch, 1.0, constants);
        Self { problem, m, arch, constants, memory, power }
    }

    /// How tiles of so many tokens cover the rows.
    pub(super) fn height(&self, tokens: u32) -> Height {
        let cover = |widths| Cover::new(self.problem, self.m, tokens, widths, self.constants);
        Height { ragged: cover(&Widths::ANY), whole: cover(&Widths::default()) }
    }

    fn call(&self, variant: &Variant, once: f64, body: f64) -> f64 {
        let Around { launch, prepass, finish } = Around::new(self.problem, variant, self.m, self.constants);
        let unhurried = launch + once + together([body, self.memory]) + finish + prepass;
        unhurried + self.power / unhurried
    }
}

/// How tiles of one height cover the rows at best: if they are multiplied only as wide as they must be, and if not.
pub(super) struct Height {
    ragged: Cover,
    whole: Cover,
}

/// Covers of one height by the widths that its tiles come in.
#[derive(Default)]
pub(super) struct Covers(Vec<(Widths, Cover)>);

impl Covers {
    fn get(&mut self, question: &Question<'_>, tokens: u32, widths: Widths) -> Cover {
        if let Some((_, cover)) = self.0.iter().find(|(known, _)| *known == widths) {
            return *cover;
        }
        let cover = Cover::new(question.problem, question.m, tokens, &widths, question.constants);
        self.0.push((widths, cover));
        cover
    }
}

/// Of all variants with a tile's tokens and columns and a fusion; `None` if none can be legal. `plain` is one of them: a
/// shallow tile, warps that are alike, nothing shared.
pub(super) fn of_tile(question: &Question<'_>, plain: &Variant, height: &Height) -> Option<f64> {
    let Question { problem, arch, .. } = *question;
    let geometry = Geometry::new(problem, plain, arch);
    // Other warps are more, and have fewer registers each; a deeper tile needs more.
    if geometry.registers > arch.registers_per_thread(geometry.threads) {
        return None;
    }
    let prepass: &[bool] = match geometry.layout {
        Layout::Wgmma(_) if problem.a_format() == Format::Nvfp4 => &[true, false],
        _ => &[false],
    };
    let of_kind = |prepass: &bool| {
        let plain = Variant { prepass: *prepass, ..*plain };
        let whole = of_widths(question, &plain, &height.whole, false);
        let ragged = || of_widths(question, &plain, &height.ragged, true);
        let is_ragged = matches!(Geometry::new(problem, &plain, arch).layout, Layout::Wgmma(layout) if layout.ragged);
        if is_ragged { whole.min(ragged()) } else { whole }
    };
    Some(prepass.iter().map(of_kind).fold(f64::INFINITY, f64::min) * ROUNDING)
}

/// As [`of_tile`], of those that are ragged or of those that are not.
fn of_widths(question: &Question<'_>, plain: &Variant, cover: &Cover, ragged: bool) -> f64 {
    let Question { problem, arch, constants: c, .. } = *question;
    let mut geometry = Geometry::new(problem, plain, arch);
    geometry.shared_bytes = 0;
    // In a deep tile stages end less often.
    let mut deep = Variant { tile: Tile { k: 256, ..plain.tile }, ..*plain };
    let (mut most_turns, mut loads) = (f64::INFINITY, false);
    if let Layout::Wgmma(layout) = &mut geometry.layout {
        layout.ragged = ragged;
        // Those that are alike have their own ways to lose time.
        deep.warps = Warps::Specialised(1);
        most_turns = f64::from((CONSUMERS_MAX * 128 / geometry.threads).max(1));
        loads = layout.decodes_tokens;
    }
    let block = Block::of(problem, &deep, &geometry, cover, c);
    let step = together([block.tensor, block.decode, block.ingress]);
    // Of a step of each round: one warpgroup's way, and the decoding of tokens.
    let (serial, loading) =
        (block.serial / most_turns, if loads { block.loading / block.steps_per_stage } else { 0.0 });
    let (cycle, launches) = (1e-3 / c.ghz, launches(plain));
    // Stages are rounded up, by less than their alignment.
    let step_bytes =
        f64::from(Geometry::new(problem, &deep, arch).stage_bytes.saturating_sub(1023)) / block.steps_per_stage;
    let latency = |blocks: u32| (block.latency + block.ingress) / (f64::from(room(arch, blocks)) / step_bytes);
    let tail = block::least_tail(problem, plain, &geometry.layout, &block, cover, c);
    let whole = Device::of(problem, plain, cover, 1.0, arch.sms().into(), c);
    // Of the shallow tile; of few turns no step takes less than a warpgroup's own way.
    let first = f64::from(geometry.stage_bytes) * (whole.sms * c.cluster_of_four.min(1.0)).min(whole.blocks);
    let last = if most_turns.is_finite() { block.serial } else { 0.0 };
    let once = |tail: f64| launches * ((block.start + tail) * cycle + ends_us(first, last, arch, c));
    let steps = f64::from(problem.depth() / 64);
    let rounds = Rounds::new(whole.busiest, geometry.blocks_per_sm, latency);
    let change = match plain.fusion {
        Fusion::PingPong => (whole.busiest - 1.0) * c.ping_pong * tail,
        _ => {
            let lasting = (whole.busiest - 1.0) * (c.persistent + tail);
            lasting.min((rounds.least - 1.0) * c.hidden.min(1.0) * (block.start + tail))
        }
    };
    let each = rounds.least * steps;
    let cycles =
        together([whole.busiest * steps * step, steps * rounds.latency, each * serial, each * loading]) + change;
    let of_whole = question.call(plain, once(tail), launches * cycles * cycle);
    // Splits of K fill the SMs evenly at best, and meet in a cluster or in the workspace.
    let tail_of = |split_k, cluster| {
        let variant = Variant { split_k, cluster, ..*plain };
        block::least_tail(problem, &variant, &geometry.layout, &block, cover, c)
    };
    let finish = (c.relaunch + 2.0 * c.finish_split) / cycle;
    let in_workspace = tail_of(2, Cluster::None) + finish;
    let tail = tail_of(1, Cluster::SplitK(2)).min(tail_of(1, Cluster::SplitK(4))).min(in_workspace);
    let even = whole.blocks / whole.sms;
    let change = (2.0 * even / f64::from(geometry.blocks_per_sm) - 1.0).max(0.0) * c.hidden.min(1.0) * block.start;
    let (all, each) = (even * steps, even * steps / f64::from(geometry.blocks_per_sm));
    let cycles = together([all * step, all * rounds.latency_of_block, each * serial, each * loading]) + change;
    let of_splits = question.call(plain, once(tail), launches * cycles * cycle);
    of_whole.min(of_splits)
}

/// Of all variants that differ from this one in stages and epilogue only; and what each epilogue takes more.
pub(super) fn of_family(
    question: &Question<'_>,
    variant: &Variant,
    covers: &mut Covers,
) -> (f64, [f64; Epilogue::ALL.len()]) {
    let Question { problem, arch, constants: c, .. } = *question;
    let one = Geometry::new(problem, &Variant { stages: 1, ..*variant }, arch);
    let cover = covers.get(question, variant.tile.tokens, block::widths(variant, &one.layout));
    let block = Block::of(problem, variant, &one, &cover, c);
    let tail = block::least_tail(problem, variant, &one.layout, &block, &cover, c);
    let device = Device::new(problem, variant, arch, &cover, c);
    let cycle = 1e-3 / c.ghz;
    let stages = block.steps / block.steps_per_stage;
    let last = block.serial * block.steps_per_stage;
    let alone = (stages / block.turns).ceil() * (last + block.serial_per_stage);
    let (all, loading) = (device.busiest * block.steps, stages * block.loading);
    // As many stages as there are at most.
    let latency = |blocks: u32| {
        let deepest = f64::from(room(arch, blocks) / one.stage_bytes.max(1)).min(STAGES_MAX.into());
        (block.latency + block.ingress * block.steps_per_stage) / (deepest - block.turns).max(block.turns)
    };
    let rounds = if variant.persistent {
        Rounds { least: device.busiest, latency: device.busiest * latency(1), latency_of_block: latency(1) }
    } else {
        Rounds::new(device.busiest, one.blocks_per_sm, latency)
    };
    let loops = together([
        all * block.tensor,
        all * block.decode,
        all * block.ingress,
        rounds.least * alone,
        stages * rounds.latency,
        rounds.least * loading,
    ]);
    let change = match variant.fusion {
        Fusion::PingPong => c.ping_pong * tail,
        _ if variant.persistent => c.persistent + tail,
        _ => c.hidden.min(1.0) * (block.start + tail),
    };
    let cycles = loops + (rounds.least - 1.0) * change;
    let launches = launches(variant);
    let first = f64::from(one.stage_bytes) * device.sms.min(device.blocks);
    let once = launches * ((block.start + tail) * cycle + ends_us(first, last, arch, c));
    let more =
        block::more_tail(problem, variant, &one.layout, &cover, c).map(|more| launches * more * cycle * ROUNDING);
    (question.call(variant, once, launches * cycles * cycle) * ROUNDING, more)
}

/// Rounds that the busiest SM takes, when it is left open how many of its blocks run beside each other.
struct Rounds {
    /// At least so many.
    least: f64,
    /// The waiting for stages in all of them together, for a stage of the loop; not with the same number of blocks.
    latency: f64,
    /// Each block's share of it, where every SM has as many as it holds.
    latency_of_block: f64,
}

impl Rounds {
    /// With one stage each an SM holds the most blocks, `most`; the fewer there are, the deeper they can be.
    fn new(busiest: f64, most: u32, latency: impl Fn(u32) -> f64) -> Self {
        let rounds = |blocks: u32| (busiest / f64::from(blocks)).max(1.0);
        let least = |latency: &dyn Fn(u32) -> f64| (1..=most).map(latency).fold(f64::INFINITY, f64::min);
        Self {
            least: rounds(most),
            latency: least(&|blocks| rounds(blocks) * latency(blocks)),
            latency_of_block: least(&|blocks| latency(blocks) / f64::from(blocks)),
        }
    }
}

/// Shared memory of each of so many blocks of an SM.
fn room(arch: &Arch, blocks: u32) -> u32 {
    arch.shared_for_blocks(blocks).min(arch.shared_per_block())
}
