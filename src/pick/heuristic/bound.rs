//! What no variant of many can undercut: predictions with the best value of whatever is left open.

pub(super) mod family;

use std::array;

use super::cost::{Device, Fixed, LaunchOverhead, ends_us, idle_cycles, launches, together};
use crate::format::Format;
use crate::path::cost::{Block, Constants, Cover, Widths};
use crate::path::{least_decoding, least_start, least_stores, mma_sync};
use crate::routing::Load;
use crate::spec::{
    Arch, Axes, BLOCKS_PER_SM_MAX, CONSUMERS_MAX, Cluster, Fusion, Geometry, Layout, MatrixPath, Problem, Spec, Tile,
    Variant, Warps, blocks, tile_columns,
};

/// Rounding must not make a bound more than what it bounds.
const ROUNDING: f64 = 1.0 - 1e-9;

/// A problem at an M on a device, and what is the same for all its variants.
pub(super) struct Question<'a> {
    pub(super) problem: &'a Problem,
    pub(super) load: &'a Load,
    pub(super) arch: &'a Arch,
    pub(super) constants: &'a Constants,
    fixed: Fixed,
    /// Parts that K may be split into.
    splits: Vec<f64>,
    /// Shared memory of each of one block of an SM, two, ….
    rooms: [u32; BLOCKS_PER_SM_MAX as usize],
}

impl<'a> Question<'a> {
    pub(super) fn new(
        problem: &'a Problem,
        load: &'a Load,
        arch: &'a Arch,
        axes: &Axes,
        constants: &'a Constants,
    ) -> Self {
        let fixed = Fixed::new(problem, load, arch, constants);
        let mut parts: Vec<u32> = axes.sharing.iter().map(|(split_k, cluster)| split_k * cluster.splits()).collect();
        parts.sort_unstable();
        parts.dedup();
        let splits = parts.into_iter().filter(|parts| *parts > 1).map(f64::from).collect();
        let room = |blocks: usize| arch.shared_for_blocks(blocks as u32 + 1).min(arch.shared_per_block());
        Self { problem, load, arch, constants, fixed, splits, rooms: array::from_fn(room) }
    }

    /// Shared memory of each of so many blocks of an SM.
    fn room(&self, blocks: u32) -> u32 {
        self.rooms[blocks as usize - 1]
    }

    /// The least that the busiest SM has of so many tiles whose K is split, in tiles.
    fn least_split(&self, tiles: f64) -> f64 {
        let sms = f64::from(self.arch.sms());
        if self.problem.groups().is_some() || self.splits.is_empty() {
            return tiles / sms;
        }
        self.splits.iter().map(|parts| (tiles * parts / sms).ceil() / parts).fold(f64::INFINITY, f64::min)
    }

    /// Of tiles of a height and so many columns; none where weights are as given, of which nothing is known.
    pub(super) fn busiest(&self, height: &Height, columns: u32) -> Option<Busiest> {
        if !self.problem.is_prepared() {
            return None;
        }
        let tiles = height.ragged.tiles * f64::from(self.problem.columns().div_ceil(columns));
        let even = tiles / f64::from(self.arch.sms());
        let whole = if self.problem.groups().is_some() { even.max(1.0) } else { even.ceil() };
        let stores = least_stores(self.problem, columns, &height.ragged, self.constants);
        Some(Busiest { whole, split: self.least_split(tiles), stores })
    }

    /// How tiles of so many tokens cover the rows.
    pub(super) fn height(&self, tokens: u32) -> Height {
        let cover = |widths| Cover::new(self.load, tokens, widths, self.constants);
        Height { ragged: cover(&Widths::ANY), whole: cover(&Widths::default()) }
    }

    /// What no variant takes less than that has a tile's tokens and columns and a fusion, by the weights that it decodes and multiplies:
    /// in whole rounds, or as splits of K share them out best.
    pub(super) fn least_us(&self, height: &Height, busiest: Option<Busiest>, columns: u32, fusion: Fusion) -> f64 {
        let Self { problem, constants: c, .. } = *self;
        let Some(Busiest { whole, split, stores }) = busiest else { return c.launch };
        let width = height.ragged.width;
        let decode = least_decoding(problem, fusion, 64 * DEEP_STEPS, width, c);
        // e4m3 values are multiplied at twice the rate.
        let rate = if problem.compute_format() == Format::E4m3 { 2.0 } else { 1.0 };
        let multiply = (c.tensor * width).max(c.tensor_min) / rate;
        let cycle = 1e-3 / c.ghz;
        let weights = f64::from(columns / tile_columns(problem));
        let of_block = weights * f64::from(problem.depth() / 64) * together([decode, multiply]) * cycle;
        let before = c.launch + least_start(problem, c) * cycle;
        let us = |rounds: f64, behind: f64| {
            let unhurried = before + together([rounds * of_block, self.fixed.memory]) + behind;
            unhurried + self.fixed.power / unhurried
        };
        let in_cluster = (c.exchange + c.exchange_token * width * weights / 2.0) * cycle;
        let meeting = in_cluster.min(least_finish_us(c));
        us(whole, stores * cycle).min(us(split, meeting)) * ROUNDING
    }

    /// What no shallower variant takes less than that leaves an SM as many blocks: it saves at most what SMs run ahead of
    /// each other, and what holds loops back that are deep.
    pub(super) fn shallower_us(&self, deepest: &Spec, deepest_us: f64, memory_us: f64) -> f64 {
        let Geometry { layout, shared_bytes, .. } = deepest.geometry();
        let held_back = layout.held_back(deepest.variant(), *shared_bytes, self.constants);
        (deepest_us / held_back - (memory_us - self.fixed.memory)) * ROUNDING
    }

    /// The least that blocks without rows take, in cycles, where an SM holds as many blocks as `geometry` says, or fewer.
    fn idle(&self, variant: &Variant, geometry: &Geometry, device: &Device, start: f64) -> f64 {
        if self.problem.groups().is_none() || variant.persistent {
            return 0.0;
        }
        let grid = blocks(self.problem, variant, self.arch, geometry, self.load.m());
        let of = |resident: u32| idle_cycles(grid, device, resident.into(), start);
        (1..=geometry.blocks_per_sm).map(of).fold(f64::INFINITY, f64::min)
    }

    /// What a call takes beside its loops.
    fn beside(&self, variant: &Variant, once: f64) -> f64 {
        let LaunchOverhead { launch, prepass, finish } =
            LaunchOverhead::new(self.problem, variant, self.load.m(), self.constants);
        launch + once + finish + prepass
    }

    /// A call whose loops take these times beside each other, in cycles, with so many between them; or something less that is above
    /// `limit`: roots take longer than all else.
    fn call<const COUNT: usize>(&self, beside: f64, times: [f64; COUNT], between: f64, cycle: f64, limit: f64) -> f64 {
        let longest = times.into_iter().fold(0.0, f64::max);
        let least = beside + ((longest + between) * cycle).max(self.fixed.memory);
        if least * ROUNDING > limit {
            return least;
        }
        let unhurried = beside + together([(together(times) + between) * cycle, self.fixed.memory]);
        unhurried + self.fixed.power / unhurried
    }
}

/// The least that the busiest SM has.
#[derive(Clone, Copy)]
pub(super) struct Busiest {
    /// Tiles, of whole ones, and of such whose K is split.
    whole: f64,
    split: f64,
    /// Cycles to store a whole one.
    stores: f64,
}

/// How tiles of one height cover the rows at best: if they are multiplied only as wide as they must be, and if not.
#[derive(Clone, Copy)]
pub(super) struct Height {
    ragged: Cover,
    whole: Cover,
}

/// Covers that are known, by tokens and the widths that tiles come in.
#[derive(Default)]
pub(super) struct Covers(Vec<(u32, Widths, Cover)>);

impl Covers {
    pub(super) fn get(&mut self, question: &Question<'_>, variant: &Variant, layout: &Layout) -> Cover {
        let (tokens, widths) = (variant.tile.tokens, layout.widths(variant));
        if let Some((.., cover)) = self.0.iter().find(|known| known.0 == tokens && known.1 == widths) {
            return *cover;
        }
        let cover = Cover::new(question.load, tokens, &widths, question.constants);
        self.0.push((tokens, widths, cover));
        cover
    }
}

/// All variants with a tile's tokens and columns and a fusion: what is known of every one of them.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    question: &'a Question<'a>,
    /// One of them: a shallow tile, warps that are alike, nothing shared, no tokens decoded.
    plain: Variant,
    height: Height,
    geometry: Geometry,
    /// Bytes of a step of a stage at least.
    step_bytes: f64,
    /// Warpgroups, or warps of a place, that can take turns.
    most_turns: f64,
}

/// Steps of a stage in the deepest tile, where what is done once a stage counts least.
const DEEP_STEPS: u32 = 4;

impl<'a> Node<'a> {
    /// `None` if none can be legal.
    pub(super) fn new(question: &'a Question<'a>, axes: &Axes, plain: &Variant, height: &Height) -> Option<Self> {
        let Question { problem, arch, .. } = *question;
        let plain = Variant { prepass: decodes_first(problem), ..*plain };
        let geometry = Geometry::new(problem, &plain, arch);
        // Other warps are more, and have fewer registers each. But blocks that stay may need fewer, as theirs come in one width, and so may
        // those that others decode for, and deeper tiles, of whole lines of e4m3 values.
        let fits = |geometry: &Geometry| geometry.registers <= arch.registers_per_thread(geometry.threads);
        let may_be = |variant: Variant| fits(&Geometry::new(problem, &variant, arch));
        let mut decoding = axes.warps.iter().filter(|warps| warps.decoders() > 0);
        let mut may_fit = || {
            may_be(Variant { persistent: true, ..plain })
                || decoding.any(|&warps| may_be(Variant { warps, ..plain }))
                || axes.k.iter().any(|&k| may_be(Variant { tile: Tile { k, ..plain.tile }, ..plain }))
        };
        if !fits(&geometry) && !may_fit() {
            return None;
        }
        // Stages are rounded up, by less than their alignment.
        let stage_bytes = Geometry::new(problem, &deep(&plain), arch).stage_bytes.saturating_sub(1023);
        let threads = if is_mma_sync(&geometry.layout) { mma_sync::THREADS_MAX } else { CONSUMERS_MAX * 128 };
        Some(Self {
            question,
            plain,
            height: *height,
            geometry: Geometry { shared_bytes: 0, ..geometry },
            step_bytes: f64::from(stage_bytes) / f64::from(DEEP_STEPS),
            most_turns: f64::from((threads / geometry.threads).max(1)),
        })
    }

    pub(super) fn plain(&self) -> &Variant {
        &self.plain
    }

    /// What no variant takes less than, or something less that is above `limit`.
    pub(super) fn least(&self, limit: f64) -> Least {
        if !self.is_bounded() {
            let launch = self.question.constants.launch * ROUNDING;
            return Least { split: launch, whole: launch };
        }
        let of_kind = |Alike { prepass, work, sent }: Alike<'_>| {
            let plain = Variant { prepass, ..self.plain };
            let split = work.split_us(&plain, limit);
            let whole = work.whole_us(&plain, split.min(limit));
            let sent = sent.map_or(whole, |sent| sent.whole_us(&plain, split.min(whole).min(limit)));
            Least { split, whole: whole.min(sent) }
        };
        let least = |a: Least, b: Least| Least { split: a.split.min(b.split), whole: a.whole.min(b.whole) };
        let none = Least { split: f64::INFINITY, whole: f64::INFINITY };
        let Least { split, whole } = self.alike().map(of_kind).fold(none, least);
        Least { split: split * ROUNDING, whole: whole * ROUNDING }
    }

    /// Whether what its variants share says how long they take at least. On the path `tcgen05` it does not, and there are few.
    pub(super) fn is_bounded(&self) -> bool {
        !matches!(self.geometry.layout, Layout::Tcgen05(_))
    }

    /// Looks into it.
    pub(super) fn ways(&self) -> Ways<'_> {
        Ways(self.is_bounded().then(|| self.alike().collect()))
    }

    fn alike(&self) -> impl Iterator<Item = Alike<'_>> {
        let prepass: &[bool] = if self.plain.prepass { &[true, false] } else { &[false] };
        prepass.iter().map(|&prepass| {
            let plain = Variant { prepass, ..self.plain };
            let work = self.work(&plain);
            let sent = work.is_ragged().then(|| self.work(&Variant { cluster: Cluster::Multicast(2), ..plain }));
            Alike { prepass, work, sent }
        })
    }

    fn work(&self, variant: &Variant) -> Work<'_> {
        let Question { problem, arch, constants, .. } = *self.question;
        let mut geometry = self.geometry;
        let mut cover = &self.height.whole;
        let decodes = decodes_first(problem) && !variant.prepass;
        if let Layout::Wgmma(layout) = &mut geometry.layout {
            layout.decodes_tokens = decodes;
            layout.ragged &= !decodes && variant.cluster.multicast() == 1;
            if layout.ragged {
                cover = &self.height.ragged;
            }
            // Of e4m3 values blocks that stay may have one width all the same, and pay for none.
            layout.ragged &= !layout.rounds();
        }
        let deep = deep(&self.plain);
        let of = |layout| Block::of(problem, &deep, &Geometry { layout, ..geometry }, cover, constants);
        let block = match geometry.layout {
            Layout::Wgmma(layout) if layout.rounds() => {
                let [halves, lines] = layout.in_halves_or_lines().map(|layout| of(Layout::Wgmma(layout)));
                halves.least(&lines).least(&of(Layout::Wgmma(layout.decoded())))
            }
            layout => of(layout),
        };
        let serial = block.serial + block.serial_per_stage / f64::from(DEEP_STEPS);
        // There, warps of a place that take turns with the steps of a stage are counted as one.
        let is_mma_sync = is_mma_sync(&geometry.layout);
        let whole = Device::of(problem, &self.plain, cover, 1.0, arch.sms().into(), constants);
        Work {
            node: self,
            cover,
            whole,
            step: together([block.tensor, block.decode, block.ingress]),
            serial: serial / self.most_turns,
            loading: if decodes { block.loading / f64::from(DEEP_STEPS) } else { 0.0 },
            last: if is_mma_sync { block.serial / self.most_turns } else { block.serial },
            layout: geometry.layout,
            block,
        }
    }
}

/// What variants of a [`Node`] take at least, in µs: those that split K, and the others; or something less that is more than the
/// other.
#[derive(Clone, Copy)]
pub(super) struct Least {
    split: f64,
    whole: f64,
}

impl Least {
    /// Any of them.
    pub(super) fn us(&self) -> f64 {
        self.split.min(self.whole)
    }

    /// Those that share K as `way` does.
    pub(super) fn us_of(&self, way: &Variant) -> f64 {
        if parts_of_k(way) > 1 { self.split } else { self.whole }
    }
}

/// Parts of K, whoever has them.
fn parts_of_k(variant: &Variant) -> u32 {
    variant.split_k * variant.cluster.splits()
}

/// A [`Node`], by whether tokens are decoded before; nothing, if that does not bound its variants.
pub(super) struct Ways<'a>(Option<Vec<Alike<'a>>>);

struct Alike<'a> {
    prepass: bool,
    work: Work<'a>,
    /// Where stages are sent to several blocks, if that differs: they are as wide as the tile.
    sent: Option<Work<'a>>,
}

impl Ways<'_> {
    /// What is known of variants that share K and stages, keep their SMs and decode tokens as `way` does.
    pub(super) fn of(&self, way: &Variant) -> Option<Way<'_>> {
        let alike = self.0.as_ref()?.iter().find(|alike| alike.prepass == way.prepass)?;
        let sent = alike.sent.as_ref().filter(|_| way.cluster.multicast() > 1);
        Some(sent.unwrap_or(&alike.work).way(way))
    }
}

/// What no kernel takes less than that adds up splits.
fn least_finish_us(c: &Constants) -> f64 {
    c.relaunch + 2.0 * c.finish_split
}

/// Whether the warps of a block are all alike and share K, as on the paths `mma` and `mxf4`.
fn is_mma_sync(layout: &Layout) -> bool {
    matches!(layout, Layout::Mma(_) | Layout::Mxf4(_))
}

/// Whether weights are e4m3 values and a warp of its own stores tiles.
fn rounds_apart(layout: &Layout) -> bool {
    matches!(layout, Layout::Wgmma(layout) if layout.rounds() && layout.stores_apart)
}

/// Whether tokens may be decoded by a kernel before.
fn decodes_first(problem: &Problem) -> bool {
    problem.is_prepared() && problem.a_format() == Format::Nvfp4
}

/// Warps that are alike have their own ways to lose time.
fn deep(plain: &Variant) -> Variant {
    let warps = if plain.path == MatrixPath::Wgmma { Warps::Specialised(1) } else { plain.warps };
    Variant { tile: Tile { k: 64 * DEEP_STEPS, ..plain.tile }, warps, ..*plain }
}

/// What a block of a [`Node`] has to do at least; in cycles, and of a step unless said otherwise.
struct Work<'a> {
    node: &'a Node<'a>,
    cover: &'a Cover,
    /// Of whole tiles, on all SMs.
    whole: Device,
    layout: Layout,
    block: Block,
    /// What an SM does.
    step: f64,
    /// The way of one of the warpgroups that take turns.
    serial: f64,
    /// The decoding of tokens.
    loading: f64,
    /// One warpgroup's way, for the last step.
    last: f64,
}

impl Work<'_> {
    fn is_ragged(&self) -> bool {
        matches!(self.layout, Layout::Wgmma(layout) if layout.ragged)
    }

    /// From the request of a stage to its arrival, for each of the steps that an SM has room for beside it.
    fn latency(&self, blocks: u32) -> f64 {
        let room = f64::from(self.node.question.room(blocks));
        (self.block.latency + self.block.ingress) / (room / self.node.step_bytes)
    }

    fn tail(&self, variant: &Variant) -> f64 {
        let Question { problem, constants, .. } = *self.node.question;
        self.layout.tails(problem, variant, &self.block, self.cover, constants).0
    }

    /// What a call takes beside its loops, and µs of a cycle of these.
    fn beside(&self, variant: &Variant, sms: f64, blocks: f64, tail: f64) -> (f64, f64) {
        let Question { arch, constants: c, .. } = *self.node.question;
        let (cycle, launches) = (1e-3 / c.ghz, launches(variant));
        // Of the shallow tile.
        let first = f64::from(self.node.geometry.stage_bytes) * sms.min(blocks);
        let once = launches * ((self.block.start + tail) * cycle + ends_us(first, self.last, arch, c));
        (self.node.question.beside(variant, once), launches * cycle)
    }

    fn steps(&self) -> f64 {
        f64::from(self.node.question.problem.depth()) / 64.0
    }

    /// Variants that share what `variant` does.
    fn way(&self, variant: &Variant) -> Way<'_> {
        let Question { problem, arch, constants: c, .. } = *self.node.question;
        let (splits, sms) = Device::shares(variant, arch, c);
        let is_whole = splits == 1.0 && sms == self.whole.sms;
        let device = if is_whole { self.whole } else { Device::of(problem, variant, self.cover, splits, sms, c) };
        let steps = self.steps() / f64::from(parts_of_k(variant));
        let blocks = self.node.geometry.blocks_per_sm;
        let rounds = Rounds::of(variant, device.busiest, blocks, |blocks| self.latency(blocks));
        let tail = self.tail(variant);
        let idle = self.node.question.idle(variant, &self.node.geometry, &device, self.block.start);
        let change = rounds.change(variant, &self.block, tail, c);
        let (beside, cycle) = self.beside(variant, device.sms, device.blocks, tail + idle);
        Way { work: self, variant: *variant, steps, rounds, busiest: device.busiest, change, beside, cycle }
    }

    /// Of variants without splits of K; or something less that is above `limit`.
    fn whole_us(&self, plain: &Variant, limit: f64) -> f64 {
        let us = |persistent, limit| self.way(&Variant { persistent, ..*plain }).any_us(limit);
        if plain.fusion == Fusion::PingPong {
            return us(true, limit);
        }
        let alone = us(false, limit);
        alone.min(us(true, limit.min(alone)))
    }

    /// What blocks without rows take at least, in cycles, where all blocks are there twice or more often: of the rounds of
    /// the others the last may not be full.
    fn split_idle(&self, whole: &Device, most: u32) -> f64 {
        let Question { problem, arch, load, .. } = *self.node.question;
        if problem.groups().is_none() {
            return 0.0;
        }
        let plain = Variant { persistent: false, ..self.node.plain };
        let more = blocks(problem, &plain, arch, &self.node.geometry, load.m()) - whole.blocks;
        (2.0 * more / (whole.sms * f64::from(most)) - 1.0).max(0.0) * self.block.start
    }

    /// Of variants with splits of K, which fill the SMs evenly at best and meet in a cluster or in the workspace.
    fn split_us(&self, plain: &Variant, limit: f64) -> f64 {
        let c = self.node.question.constants;
        let whole = &self.whole;
        let tail_of = |split_k, cluster| self.tail(&Variant { split_k, cluster, ..*plain });
        let finish = least_finish_us(c) * c.ghz * 1e3;
        let in_cluster = tail_of(1, Cluster::SplitK(2)).min(tail_of(1, Cluster::SplitK(4)));
        let tail = in_cluster.min(tail_of(2, Cluster::None) + finish);
        let even = whole.blocks / whole.sms;
        let most = self.node.geometry.blocks_per_sm;
        let all = self.node.question.least_split(whole.blocks) * self.steps();
        let each = all / f64::from(most);
        let latency = (1..=most).map(|blocks| self.latency(blocks) / f64::from(blocks)).fold(f64::INFINITY, f64::min);
        let times = [all * self.step, all * latency, each * self.serial, each * self.loading];
        let change = (2.0 * even / f64::from(most) - 1.0).max(0.0) * c.hidden.min(1.0) * self.block.start;
        let tail = tail + self.split_idle(whole, most);
        let (beside, cycle) = self.beside(plain, whole.sms * c.cluster_of_four.min(1.0), whole.blocks, tail);
        self.node.question.call(beside, times, change, cycle, limit)
    }
}

/// Variants of a [`Node`] that share K and stages, keep their SMs and decode tokens alike.
pub(super) struct Way<'a> {
    work: &'a Work<'a>,
    variant: Variant,
    /// Of a split.
    steps: f64,
    rounds: Rounds,
    /// Tiles of the busiest SM.
    busiest: f64,
    /// What is between the loops, in cycles.
    change: f64,
    /// µs beside loops and what is between them, and of a cycle of these.
    beside: f64,
    cycle: f64,
}

impl Way<'_> {
    /// What none takes less than, or something less that is above `limit`.
    pub(super) fn least_us(&self, limit: f64) -> f64 {
        self.any_us(limit) * ROUNDING
    }

    /// The same of those that have stages of so much K and these warps.
    pub(super) fn least_us_with(&self, k: u32, warps: Warps, limit: f64) -> f64 {
        let Work { node, block, layout, .. } = self.work;
        if is_mma_sync(layout) {
            return 0.0;
        }
        let Question { problem, constants, .. } = *node.question;
        let variant = Variant { tile: Tile { k, ..self.variant.tile }, warps, ..self.variant };
        let more = layout.more_decoding(problem, &variant, 64 * DEEP_STEPS, constants);
        let step = together([block.tensor, block.decode + more, block.ingress]);
        let steps_per_stage = f64::from(k / 64);
        let stages = self.steps / steps_per_stage;
        // At most: those that decode or share tokens do not take turns.
        let turns = warps.consumers().map_or(1, |consumers| (128 * consumers / node.geometry.threads).max(1));
        let serial = (stages / f64::from(turns)).ceil() * (block.serial * steps_per_stage + block.serial_per_stage);
        let loads = warps != Warps::Uniform && self.work.loading == 0.0;
        let loading = if loads { stages * block.loading } else { self.steps * self.work.loading };
        self.us(step, serial, loading, limit) * ROUNDING
    }

    fn any_us(&self, limit: f64) -> f64 {
        self.us(self.work.step, self.steps * self.work.serial, self.steps * self.work.loading, limit)
    }

    /// By what an SM takes for a step, and a warpgroup and the warps that load for a loop, in cycles.
    fn us(&self, step: f64, serial: f64, loading: f64, limit: f64) -> f64 {
        let Self { steps, rounds, busiest, change, beside, cycle, .. } = self;
        let times = [busiest * steps * step, steps * rounds.latency, rounds.least * serial, rounds.least * loading];
        self.work.node.question.call(*beside, times, *change, *cycle, limit)
    }
}

/// Rounds that the busiest SM takes, when it is left open how many of its blocks run beside each other.
struct Rounds {
    /// At least so many.
    least: f64,
    /// The waiting for stages in all of them together, for a stage of the loop; not with the same number of blocks.
    latency: f64,
}

impl Rounds {
    /// Of a variant of which an SM holds `most` blocks with one stage each.
    fn of(variant: &Variant, busiest: f64, most: u32, latency: impl Fn(u32) -> f64) -> Self {
        if variant.persistent {
            Self { least: busiest, latency: busiest * latency(1) }
        } else {
            // With one stage each an SM holds the most blocks; the fewer there are, the deeper they can be.
            let rounds = |blocks: u32| (busiest / f64::from(blocks)).max(1.0);
            let waiting = (1..=most).map(|blocks| rounds(blocks) * latency(blocks));
            Self { least: rounds(most), latency: waiting.fold(f64::INFINITY, f64::min) }
        }
    }

    /// What is between the loops, in cycles.
    fn change(&self, variant: &Variant, block: &Block, tail: f64, c: &Constants) -> f64 {
        let each = match variant.fusion {
            Fusion::PingPong => c.ping_pong * tail,
            _ if variant.persistent => c.persistent + tail,
            _ => c.hidden.min(1.0) * (block.start + tail),
        };
        (self.least - 1.0) * each
    }
}
