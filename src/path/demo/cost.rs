//! What one block has to do.

use super::geometry::DemoLayout;
use crate::path::cost::{Block, Constants, Cover, Widths, steps};
use crate::path::{Epilogue, Variant};
use crate::problem::Problem;

/// Warpgroups of a block that take turns with the stages.
pub(in crate::path) fn turns(_: &DemoLayout) -> u32 {
    1
}

/// The widths that a tile may be multiplied in.
pub(in crate::path) fn widths(_: &DemoLayout, _: &Variant) -> Widths {
    Widths::default()
}

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
        tail: 0.0,
    }
}

/// No epilogue of this variant takes less.
pub(in crate::path) fn least_tail(
    _: &DemoLayout,
    _: &Problem,
    _: &Variant,
    _: &Block,
    _: &Cover,
    _: &Constants,
) -> f64 {
    0.0
}

/// What each epilogue takes for the result.
pub(in crate::path) fn stores(
    _: &DemoLayout,
    _: &Problem,
    _: &Variant,
    _: &Cover,
    _: &Constants,
) -> [f64; Epilogue::ALL.len()] {
    [0.0; Epilogue::ALL.len()]
}
