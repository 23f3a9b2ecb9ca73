//! From the work of a block to the time of a call.

use super::terms::{Prediction, Terms};
use crate::path::cost::{Block, Constants, Cover, tile_efficiency, wave_efficiency};
use crate::routing::Load;
use crate::spec::{Arch, Fusion, Problem, Spec, Variant, blocks};

/// What no variant of a problem changes.
pub(super) struct Fixed {
    /// All bytes that must move, at the memory's speed, in µs. Groups without rows need no weights.
    pub(super) memory: f64,
    /// What a call takes longer because of its power, in µs, times what it takes without that: the busier the tensor cores, the lower the
    /// clock that the limit leaves. Padding takes time, but is all zeros and takes little power.
    pub(super) power: f64,
}

impl Fixed {
    pub(super) fn new(problem: &Problem, load: &Load, arch: &Arch, c: &Constants) -> Self {
        let m = load.m().into();
        let useful = problem.flop(m) / problem.flop_per_s(arch) * 1e6;
        let memory = problem.bytes_with(m, load.with_rows()) / bytes_per_us(arch, c);
        Self { memory, power: c.power * useful * useful }
    }
}

/// What all depths of a variant share that have the same widths.
pub(super) struct Shared<'a> {
    load: &'a Load,
    cover: Cover,
    constants: &'a Constants,
    fixed: Fixed,
    device: Device,
    overhead: LaunchOverhead,
}

impl<'a> Shared<'a> {
    pub(super) fn new(spec: &Spec, load: &'a Load, cover: Cover, constants: &'a Constants) -> Self {
        let (problem, variant, arch) = (spec.problem(), spec.variant(), spec.arch());
        Self {
            load,
            cover,
            constants,
            fixed: Fixed::new(problem, load, arch, constants),
            device: Device::new(problem, variant, arch, &cover, constants),
            overhead: LaunchOverhead::new(problem, variant, load.m(), constants),
        }
    }

    /// Stages of all tiles that a block has one after the other, each of which has so many.
    pub(super) fn stages_in_row(&self, stages: u32, persistent: bool) -> u32 {
        (f64::from(stages) * self.device.in_a_row(persistent)).ceil() as u32
    }

    /// The time of a call alone, in µs, and what the memory takes of it.
    pub(super) fn us(&self, spec: &Spec) -> (f64, f64) {
        let Prediction { us, terms } = covered(spec, self);
        (us, terms.memory)
    }
}

/// Predicts the time of a call.
pub(super) fn predict(spec: &Spec, load: &Load, constants: &Constants) -> Prediction {
    let widths = spec.geometry().layout.widths(spec.variant());
    let cover = Cover::new(load, spec.variant().tile.tokens, &widths, constants);
    covered(spec, &Shared::new(spec, load, cover, constants))
}

// Inlined, so that whoever wants the time alone does not pay for the rest.
#[inline(always)]
fn covered(spec: &Spec, shared: &Shared<'_>) -> Prediction {
    let (problem, variant, geometry) = (spec.problem(), spec.variant(), spec.geometry());
    call(spec, &Block::of(problem, variant, geometry, &shared.cover, shared.constants), shared)
}

/// How many blocks there are, and how many of them the busiest SM has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Device {
    /// Of a launch.
    pub(super) blocks: f64,
    /// SMs that can have one.
    pub(super) sms: f64,
    /// Tiles of the busiest SM.
    pub(super) busiest: f64,
}

impl Device {
    pub(super) fn new(problem: &Problem, variant: &Variant, arch: &Arch, cover: &Cover, c: &Constants) -> Self {
        let (splits, sms) = Self::shares(variant, arch, c);
        Self::of(problem, variant, cover, splits, sms, c)
    }

    /// Blocks that have a tile together, and SMs that can have one.
    #[inline]
    pub(super) fn shares(variant: &Variant, arch: &Arch, c: &Constants) -> (f64, f64) {
        let splits = f64::from(variant.split_k * variant.cluster.splits() * variant.cluster.tile_blocks());
        let share = if variant.cluster.blocks() == 4 { c.cluster_of_four } else { 1.0 };
        (splits, (f64::from(arch.sms()) * share).max(1.0))
    }

    /// With any number of splits, on any number of SMs.
    #[inline]
    pub(super) fn of(
        problem: &Problem,
        variant: &Variant,
        cover: &Cover,
        splits: f64,
        sms: f64,
        c: &Constants,
    ) -> Self {
        let columns = f64::from(problem.columns().div_ceil(variant.tile.columns));
        let blocks = cover.tiles * columns * splits;
        let even = blocks / sms;
        let busiest = match problem.groups() {
            None => even.ceil(),
            Some(_) => {
                // The largest come first, in turn, so SMs with one more than the rest have small ones.
                let rounds = drawn_rounds(cover.tiles, cover.spread, columns * splits / sms);
                let large = (rounds - even).max(0.0) * (rounds - 1.0).max(0.0) / even;
                even.max(rounds * (1.0 - large * cover.unlike)).max(1.0) + if even > 1.0 { c.straggler } else { 0.0 }
            }
        };
        Self { blocks, sms, busiest }
    }

    /// Tiles of a block, through which its stages go on.
    pub(super) fn in_a_row(&self, persistent: bool) -> f64 {
        if persistent { self.busiest } else { 1.0 }
    }
}

/// Rounds that blocks take of so many tiles, give or take a standard deviation of `spread`, each of which is `share` of a round.
/// There is no part of a tile: a mean between two whole numbers of them is now the one, now the other.
fn drawn_rounds(tiles: f64, spread: f64, share: f64) -> f64 {
    let whole = tiles.floor();
    let more = tiles - whole;
    let either = (whole * share).ceil() * (1.0 - more) + ((whole + 1.0) * share).ceil() * more;
    let (variance, of_parts) = (spread * spread, more * (1.0 - more));
    if variance <= of_parts {
        return either;
    }
    let weight = of_parts / variance;
    weight * either + (1.0 - weight) * rounds(tiles * share, (variance - of_parts).sqrt() * share)
}

/// Rounds that blocks take, if there are `even` of them for each SM, give or take a standard deviation of `spread`: on average over what
/// is as likely, as wide as that.
fn rounds(even: f64, spread: f64) -> f64 {
    /// Half the width of an even distribution for its standard deviation.
    const HALF: f64 = 1.732;
    let half = HALF * spread;
    if half < 1e-3 {
        return even.ceil();
    }
    // The integral of what is rounded up.
    let until = |at: f64| {
        let at = at.max(0.0);
        let whole = at.floor();
        whole * (whole + 1.0) / 2.0 + (whole + 1.0) * (at - whole)
    };
    (until(even + half) - until(even - half)) / (even + half - (even - half).max(0.0))
}

/// A mean near the largest: what runs side by side hinders each other a little.
#[inline]
pub(super) fn together<const COUNT: usize>(times: [f64; COUNT]) -> f64 {
    let mut sum = 0.0;
    for time in times {
        let square = time * time;
        sum += square * square;
    }
    sum.sqrt().sqrt()
}

/// The loop of a block of which `beside` run on an SM, in cycles, by what limits it.
#[derive(Clone, Copy, Debug, Default)]
struct Loop {
    tensor: f64,
    decode: f64,
    ingress: f64,
    serial: f64,
    latency: f64,
    loading: f64,
}

impl Loop {
    /// Of so many loops `in_a_row`, through which the stages go on.
    fn new(block: &Block, beside: f64, in_a_row: f64) -> Self {
        let stages = block.steps / block.steps_per_stage;
        let row = in_a_row * stages;
        let busy = beside * block.steps_per_stage;
        let (tensor, decode, ingress) = (busy * block.tensor, busy * block.decode, busy * block.ingress);
        let alone = block.serial * block.steps_per_stage + block.serial_per_stage;
        // The last of a warpgroup's turns is taken alone.
        let serial = alone * (stages / block.turns).ceil() / stages;
        // Stages that are there are held until their warpgroup has begun with its next one, which takes the last of their
        // places as many stages later as there are warpgroups: only the others are on their way meanwhile. Where there
        // are no others, a stage is released before the next is waited for.
        let multiplied = block.turns * together([tensor, decode, serial]);
        let others = block.stages - block.turns;
        let latency = if block.stages >= row {
            // All are requested at once, and none waits for another's place.
            (block.latency + ingress) / row
        } else if others > 0.0 {
            (block.latency + ingress + block.hold * multiplied) / others
        } else {
            (block.latency + ingress + multiplied) / block.stages
        };
        Self {
            tensor: stages * tensor,
            decode: stages * decode,
            ingress: stages * ingress,
            serial: stages * serial,
            latency: stages * latency,
            loading: stages * block.loading,
        }
    }

    fn cycles(&self) -> f64 {
        let Self { tensor, decode, ingress, serial, latency, loading } = *self;
        together([tensor, decode, ingress, serial, latency, loading])
    }

    fn add(&mut self, other: &Self, times: f64) {
        self.tensor += times * other.tensor;
        self.decode += times * other.decode;
        self.ingress += times * other.ingress;
        self.serial += times * other.serial;
        self.latency += times * other.latency;
        self.loading += times * other.loading;
    }
}

/// What the busiest SM does in a launch, in cycles.
struct CriticalSm {
    loops: Loop,
    /// From the first loop to the last.
    cycles: f64,
    /// Of them, between loops.
    between: f64,
    /// Before the first loop, and after the last.
    start: f64,
    tail: f64,
}

impl CriticalSm {
    fn new(variant: &Variant, resident: f64, block: &Block, device: &Device, c: &Constants) -> Self {
        let mut loops = Loop::default();
        let mut cycles = 0.0;
        let mut round = |beside: f64, times: f64| {
            let one = Loop::new(block, beside, device.in_a_row(variant.persistent));
            loops.add(&one, times);
            cycles += times * one.cycles() * block.rotation;
        };
        let rounds = if variant.persistent {
            round(1.0, device.busiest);
            device.busiest
        } else {
            // As many blocks as fit at a time, then the rest; of less than one block that much.
            let beside = resident.min(device.busiest).max(1.0);
            let whole = (device.busiest / beside).floor();
            let rest = device.busiest - whole * beside;
            round(beside, whole);
            if rest > 0.0 {
                round(rest.max(1.0), rest.min(1.0));
            }
            whole + rest.min(1.0)
        };
        let change = match variant.fusion {
            Fusion::PingPong => c.ping_pong * block.tail,
            _ if variant.persistent => c.persistent + block.tail,
            _ if resident > 1.0 => c.hidden * (block.start + block.tail),
            _ => block.start + block.start_behind + block.tail,
        };
        let between = (rounds - 1.0).max(0.0) * change;
        let others = resident.min(device.busiest).max(1.0) - 1.0;
        let start = block.start + others * block.start_beside;
        Self { loops, cycles: cycles + between, between, start, tail: block.tail }
    }
}

#[inline(always)]
fn call(spec: &Spec, block: &Block, shared: &Shared<'_>) -> Prediction {
    let Shared { load, cover, constants: c, fixed: Fixed { memory, power }, device, overhead } = shared;
    let m = load.m();
    let (problem, variant, arch) = (spec.problem(), spec.variant(), spec.arch());
    let cycle = 1e-3 / c.ghz;
    let resident = f64::from(spec.geometry().blocks_per_sm);
    let launches = launches(variant);
    let busiest = CriticalSm::new(variant, resident, block, device, c);
    let scaled = |cycles: f64| launches * cycles * cycle;

    // SMs that are lucky run ahead of the others, by as much as their stages hold, and are done too early.
    let beside = resident.min(device.busiest.ceil()).max(1.0);
    let row = device.in_a_row(variant.persistent) * (block.steps / block.steps_per_stage);
    let held = block.stages.min(row) * f64::from(spec.geometry().stage_bytes);
    let ahead = c.ahead * held * (device.sms * beside).min(device.blocks);
    let memory = memory + ahead / bytes_per_us(arch, c);
    let body = together([scaled(busiest.cycles), memory]);
    let LaunchOverhead { launch, prepass, finish } = *overhead;
    let first = f64::from(spec.geometry().stage_bytes) * (device.sms * beside).min(device.blocks);
    let fixed = scaled(busiest.start) + launches * ends_us(first, block.serial * block.steps_per_stage, arch, c);
    let tail = scaled(busiest.tail);
    let between = scaled(busiest.between);
    let idle = match problem.groups() {
        None => 0.0,
        Some(_) => {
            let grid = blocks(problem, variant, arch, spec.geometry(), m);
            scaled(idle_cycles(grid, device, resident, block.start))
        }
    };
    let unhurried = launch + fixed + body + idle + tail + finish + prepass;
    let tensor = scaled(busiest.loops.tensor);
    let power = power / unhurried;
    let us = unhurried + power;

    let clusters = f64::from(variant.cluster.blocks());
    let capacity = device.sms * if variant.persistent { 1.0 } else { resident };
    let terms = Terms {
        launch,
        fixed,
        between,
        tensor,
        decode: scaled(busiest.loops.decode),
        ingress: scaled(busiest.loops.ingress),
        serial: scaled(busiest.loops.serial),
        latency: scaled(busiest.loops.latency),
        loading: scaled(busiest.loops.loading),
        memory,
        idle,
        tail,
        prepass,
        finish,
        power,
        blocks: device.blocks,
        blocks_per_sm: resident,
        wave_efficiency: wave_efficiency(device.blocks / clusters, capacity / clusters),
        token_efficiency: cover.rows / cover.width,
        tile_efficiency: cover.rows / cover.width
            * tile_efficiency(problem.columns().into(), variant.tile.columns.into())
            * tile_efficiency(problem.depth().into(), variant.tile.k.into()),
    };
    Prediction { us, terms }
}

/// Launches of the matrix kernel.
#[inline]
pub(super) fn launches(variant: &Variant) -> f64 {
    if variant.fusion == Fusion::TwoPass { 2.0 } else { 1.0 }
}

/// What a call takes beside its matrix kernel, in µs.
pub(super) struct LaunchOverhead {
    pub(super) launch: f64,
    pub(super) prepass: f64,
    pub(super) finish: f64,
}

impl LaunchOverhead {
    pub(super) fn new(problem: &Problem, variant: &Variant, m: u32, c: &Constants) -> Self {
        let cycle = 1e-3 / c.ghz;
        let (rows, splits) = (f64::from(m), f64::from(variant.split_k));
        // fp32 sums are written, then read.
        let sums = splits * f64::from(problem.operation().products()) * rows * f64::from(problem.columns());
        let finish = c.relaunch + c.finish_split * splits + 8.0 * sums / c.workspace * cycle;
        // Codes and scales are read, 16-bit values written.
        let prepass = c.prepass + 2.6 * rows * f64::from(problem.depth()) / c.workspace * cycle;
        Self {
            launch: c.launch + (launches(variant) - 1.0) * c.relaunch,
            prepass: if variant.prepass { prepass } else { 0.0 },
            finish: if variant.needs_finish() { finish } else { 0.0 },
        }
    }
}

/// What a launch takes at either end of its loops, in µs: every block waits for its first stage, which comes no sooner than
/// those of all others, and works off its last one. `first` is the bytes of all first stages, `last` the cycles of a last one.
#[inline]
pub(super) fn ends_us(first: f64, last: f64, arch: &Arch, c: &Constants) -> f64 {
    c.fill * first / bytes_per_us(arch, c) + c.drain * last * 1e-3 / c.ghz
}

#[inline]
fn bytes_per_us(arch: &Arch, c: &Constants) -> f64 {
    arch.memory_bytes_per_s() * c.memory_share * 1e-6
}

/// What blocks take that the grid has for groups without rows, in cycles: they come last and find out that there is nothing
/// for them, as many at a time as find room; what has room beside the last of the others takes nothing. An SM has `resident`
/// blocks at a time.
#[inline]
pub(super) fn idle_cycles(grid: f64, device: &Device, resident: f64, start: f64) -> f64 {
    let slots = device.sms * resident;
    let rounds = (device.blocks / slots).ceil();
    ((grid / slots).max(rounds) - rounds) * start
}

#[cfg(test)]
mod tests {
    use super::{drawn_rounds, rounds};

    #[test]
    fn rounds_are_whole_where_blocks_are_known_and_an_average_where_they_are_drawn() {
        assert_eq!([0.2, 1.0, 1.97, 2.0, 2.01].map(|even| rounds(even, 0.0)), [1.0, 1.0, 2.0, 2.0, 3.0]);
        let drawn = |even, spread, expected: f64| {
            let found = rounds(even, spread);
            assert!((found - expected).abs() < 0.02, "{even} {spread}: {found} for {expected}");
        };
        // Half of what is likely is more.
        drawn(2.0, 0.1, 2.5);
        drawn(1.97, 0.06, 2.36);
        drawn(1.5, 0.1, 2.0);
        // All are as likely: half a round more.
        drawn(7.3, 3.0, 7.8);
        // Fewer than none there are not.
        drawn(0.1, 0.2, 1.0);
    }

    #[test]
    fn a_tile_more_that_is_seldom_there_is_seldom_a_round_more() {
        let rounds_of = |tiles: f64, spread, columns: f64| drawn_rounds(tiles, spread, columns / 132.0);
        assert_eq!(rounds_of(8.0, 0.0, 16.0), 1.0);
        // One time in sixteen there are 144 blocks.
        let seldom = rounds_of(8.0625, (15.0_f64 / 256.0).sqrt(), 16.0);
        assert!((seldom - 1.0625).abs() < 1e-9, "{seldom}");
        // Of many tiles that differ by several it is as it was.
        let many = rounds_of(300.5, 6.0, 6.0);
        assert!((many - rounds(300.5 * 6.0 / 132.0, 6.0 * 6.0 / 132.0)).abs() < 0.02, "{many}");
    }
}
