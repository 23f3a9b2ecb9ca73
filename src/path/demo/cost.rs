//! What one block has to do.

use super::geometry::DemoLayout;
use crate::path::Variant;
use crate::path::cost::{Block, Constants, Cover, steps};
pub(in crate::path) use crate::path::cost::{
    never_held_back as held_back, no_more as more_decoding, one_tail as tails, one_turn as turns, whole_width as widths,
};
use crate::problem::Problem;

/// The work of a block: next to nothing.
pub(in crate::path) fn block(
    _: &DemoLayout,
    problem: &Problem,
    variant: &Variant,
    _: u32,
    _: &Cover,
    _: &Constants,
) -> Block {
    Block {
        steps: steps(problem, variant),
        steps_per_stage: f64::from(variant.tile.k) / 64.0,
        stages: f64::from(variant.stages),
        turns: 1.0,
        rotation: 1.0,
        tensor: 0.0,
        decode: 0.0,
        ingress: 0.0,
        serial: 0.0,
        serial_per_stage: 0.0,
        loading: 0.0,
        latency: 0.0,
        hold: 0.0,
        start: 0.0,
        start_beside: 0.0,
        start_behind: 0.0,
        tail: 0.0,
    }
}
