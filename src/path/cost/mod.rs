//! What one block has to do: the work of its loop along K, and what is before and behind it.

mod constants;
mod cover;

pub use constants::{Constants, Kind, Tables};
pub(crate) use cover::{Cover, Widths};
pub use cover::{tile_efficiency, wave_efficiency};

use super::{Epilogue, Geometry, Variant};
use crate::problem::Problem;

/// The work of a block. All times are in cycles; those of the loop are for 64 of K ("a step") unless said otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// Steps of the loop, those of one split of K.
    pub(crate) steps: f64,
    /// Steps of a stage.
    pub(crate) steps_per_stage: f64,
    /// Stages that shared memory holds.
    pub(crate) stages: f64,
    /// Warpgroups (or warps) that take turns with the stages.
    pub(crate) turns: f64,
    /// How much longer the loop takes because of how stages and turns go together, as a factor.
    pub(crate) rotation: f64,
    /// The tensor cores.
    pub(crate) tensor: f64,
    /// The schedulers, with the instructions that decode.
    pub(crate) decode: f64,
    /// What reaches the SM.
    pub(crate) ingress: f64,
    /// One warpgroup's own way, with nobody in it.
    pub(crate) serial: f64,
    /// What is added to that once a stage.
    pub(crate) serial_per_stage: f64,
    /// The warps that load, for a stage.
    pub(crate) loading: f64,
    /// From the request of a stage to its arrival.
    pub(crate) latency: f64,
    /// Share of a warpgroup's time for a stage after which it releases the stage before.
    pub(crate) hold: f64,
    /// Before the loop.
    pub(crate) start: f64,
    /// More of it for each further block of an SM.
    pub(crate) start_beside: f64,
    /// More of it for a block that comes behind another on an SM that holds one.
    pub(crate) start_behind: f64,
    /// After the loop.
    pub(crate) tail: f64,
}

impl Block {
    /// What neither of two that differ in how weights are decoded undercuts.
    pub(crate) fn least(&self, other: &Self) -> Self {
        Self {
            tensor: self.tensor.min(other.tensor),
            decode: self.decode.min(other.decode),
            serial: self.serial.min(other.serial),
            tail: self.tail.min(other.tail),
            ..*self
        }
    }

    /// Of a variant, when its tiles of tokens are as `cover` says.
    pub(crate) fn of(
        problem: &Problem,
        variant: &Variant,
        geometry: &Geometry,
        cover: &Cover,
        constants: &Constants,
    ) -> Self {
        geometry.layout.block(problem, variant, geometry.shared_bytes, cover, constants)
    }
}

/// Stages of a split, the last one cut short.
pub(crate) fn stages(problem: &Problem, variant: &Variant) -> u32 {
    problem.depth().div_ceil(variant.tile.k).div_ceil(variant.split_k * variant.cluster.splits())
}

/// Steps of a split, with the last stage of the tile along K cut short.
pub(super) fn steps(problem: &Problem, variant: &Variant) -> f64 {
    f64::from((stages(problem, variant) * variant.tile.k).min(problem.depth())) / 64.0
}

/// How much longer a loop takes of so many stages with which warpgroups take turns, as a factor: places in the ring stay a
/// warpgroup's or do not.
pub(crate) fn rotation(stages: u32, turns: u32, constants: &Constants) -> f64 {
    if stages.is_multiple_of(turns) { 1.0 } else { constants.rotation }
}

/// Of paths whose warps never take turns with the stages.
pub(super) fn one_turn<L>(_: &L) -> u32 {
    1
}

/// Of paths that multiply every tile as wide as it is.
pub(super) fn whole_width<L>(_: &L, _: &Variant) -> Widths {
    Widths::default()
}

/// Of paths with one epilogue: what it takes is in the work of a block.
pub(super) fn one_tail<L>(
    _: &L,
    _: &Problem,
    _: &Variant,
    block: &Block,
    _: &Cover,
    _: &Constants,
) -> (f64, [f64; Epilogue::ALL.len()]) {
    (block.tail, [0.0; Epilogue::ALL.len()])
}

/// Of paths whose loops do nothing but wait less where there are more stages.
pub(super) fn never_held_back<L>(_: &L, _: &Variant, _: u32, _: &Constants) -> f64 {
    1.0
}

/// Of paths that do not say what decoding takes more.
pub(super) fn no_more<L>(_: &L, _: &Problem, _: &Variant, _: u32, _: &Constants) -> f64 {
    0.0
}
