//! In which order it adds up.

use crate::path::geometry::K_BLOCK;
use crate::path::mma::geometry::MmaLayout;
use crate::path::{Sharers, Variant};
use crate::problem::Problem;

/// Elements along K that one instruction multiplies.
pub(in crate::path) fn step() -> u32 {
    16
}

/// Warps at one place take turns with the K blocks, whatever a stage holds.
pub(in crate::path) fn sharers(layout: &MmaLayout, _: &Variant) -> Sharers {
    Sharers { count: layout.warps_k, depth: K_BLOCK }
}

/// Blocks of zeros that are multiplied behind the end of K: up to a whole tile.
pub(in crate::path) fn zeros(problem: &Problem, variant: &Variant) -> u32 {
    (problem.depth().next_multiple_of(variant.tile.k) - problem.depth()) / K_BLOCK
}
