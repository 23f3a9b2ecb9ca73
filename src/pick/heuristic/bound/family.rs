//! Variants that differ in stages and epilogue only.

use super::{Covers, Question, ROUNDING, Rounds, rounds_apart};
use crate::path::cost::Block;
use crate::pick::heuristic::cost::{Device, ends_us, launches};
use crate::spec::{Epilogue, Geometry, STAGES_MAX, Variant};

/// Of all variants that differ from this one in stages and epilogue only, what none takes less than, or something less that is above
/// `limit`; and what each epilogue takes more; `None` if there are too many warps for the registers that they need.
pub(in crate::pick::heuristic) fn of_family(
    question: &Question<'_>,
    variant: &Variant,
    covers: &mut Covers,
    limit: f64,
) -> Option<(f64, [f64; Epilogue::ALL.len()])> {
    let one = fitting(question, variant)?;
    let (us, more) = of_epilogues(question, variant, &one, covers, limit);
    // Of e4m3 values a tile that a warp of its own stores may be multiplied in another way; of the others blocks that store directly
    // take no less than these.
    let staged = Variant { epilogue: Epilogue::Tma, ..*variant };
    let Some(other) = rounds_apart(&one.layout).then(|| fitting(question, &staged)).flatten() else {
        return Some((us, more));
    };
    let (us_of_others, more_of_others) = of_epilogues(question, &staged, &other, covers, limit);
    let mut of_each = more_of_others.map(|more| us_of_others + more);
    of_each[variant.epilogue as usize] = us + more[variant.epilogue as usize];
    let least = of_each.into_iter().fold(f64::INFINITY, f64::min);
    Some((least, of_each.map(|us| us - least)))
}

/// A variant with one stage, if there are registers for it.
fn fitting(Question { problem, arch, .. }: &Question<'_>, variant: &Variant) -> Option<Geometry> {
    let one = Geometry::new(problem, &Variant { stages: 1, ..*variant }, arch);
    (one.registers <= arch.registers_per_thread(one.threads)).then_some(one)
}

/// As [`of_family`], of those whose geometry is that of `one` but for the stages.
fn of_epilogues(
    question: &Question<'_>,
    variant: &Variant,
    one: &Geometry,
    covers: &mut Covers,
    limit: f64,
) -> (f64, [f64; Epilogue::ALL.len()]) {
    let Question { problem, arch, constants: c, .. } = *question;
    let cover = covers.get(question, variant, &one.layout);
    let block = Block::of(problem, variant, one, &cover, c);
    let (tail, more_tail) = one.layout.tails(problem, variant, &block, &cover, c);
    let device = Device::new(problem, variant, arch, &cover, c);
    let cycle = 1e-3 / c.ghz;
    let stages = block.steps / block.steps_per_stage;
    let last = block.serial * block.steps_per_stage;
    let alone = (stages / block.turns).ceil() * (last + block.serial_per_stage);
    let (all, loading) = (device.busiest * block.steps, stages * block.loading);
    let row = stages * device.in_a_row(variant.persistent);
    // As many stages as there are at most.
    let latency = |blocks: u32| {
        let deepest = f64::from(question.room(blocks) / one.stage_bytes.max(1)).min(STAGES_MAX.into());
        let others = if deepest < row { (deepest - block.turns).max(block.turns) } else { row };
        (block.latency + block.ingress * block.steps_per_stage) / others
    };
    let rounds = Rounds::of(variant, device.busiest, one.blocks_per_sm, latency);
    let times = [
        all * block.tensor,
        all * block.decode,
        all * block.ingress,
        rounds.least * alone,
        stages * rounds.latency,
        rounds.least * loading,
    ];
    let change = rounds.change(variant, &block, tail, c);
    let launches = launches(variant);
    let first = f64::from(one.stage_bytes) * device.sms.min(device.blocks);
    let idle = question.idle(variant, one, &device, block.start);
    let once = launches * ((block.start + idle + tail) * cycle + ends_us(first, last, arch, c));
    let more = more_tail.map(|more| launches * more * cycle * ROUNDING);
    let us = question.call(question.beside(variant, once), times, change, launches * cycle, limit);
    (us * ROUNDING, more)
}
