//! In which order it adds up.

use super::geometry::DemoLayout;
use crate::format::Format;
use crate::path::{K_BLOCK, Sharers, Variant};
use crate::problem::Problem;

/// Elements along K that one instruction multiplies.
pub(in crate::path) fn step(_: Format) -> u32 {
    8
}

/// What one instruction multiplies.
pub(in crate::path) fn factors() -> &'static [Format] {
    &[Format::F16, Format::Bf16]
}

/// Who shares the K of a block.
pub(in crate::path) fn sharers(_: &DemoLayout, _: &Variant) -> Sharers {
    Sharers { count: 1, depth: K_BLOCK }
}

/// Blocks of zeros that are multiplied behind the end of K.
pub(in crate::path) fn zeros(_: &Problem, _: &Variant) -> u32 {
    0
}
