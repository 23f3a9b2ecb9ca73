//! In which order it adds up.

use super::Layout;
use crate::format::Format;
use crate::path::{Sharers, Variant, mma_sync};
use crate::problem::Problem;

/// Elements along K that one instruction multiplies.
pub(in crate::path) fn step(_: Format) -> u32 {
    16
}

/// What one instruction multiplies.
pub(in crate::path) fn factors() -> &'static [Format] {
    &[Format::F16, Format::Bf16]
}

/// Who shares the K of a block.
pub(in crate::path) fn sharers(layout: &Layout, _: &Variant) -> Sharers {
    layout.sharers()
}

/// Blocks of zeros that are multiplied behind the end of K.
pub(in crate::path) fn zeros(problem: &Problem, variant: &Variant) -> u32 {
    mma_sync::zeros(problem, variant)
}
