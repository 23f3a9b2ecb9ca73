//! In which order it adds up.

use super::geometry::{K_DEPTH, Tcgen05Layout};
use crate::format::Format;
use crate::path::{Sharers, Variant};
use crate::problem::Problem;

/// Elements along K that one instruction multiplies.
pub(in crate::path) fn step(_: Format) -> u32 {
    64
}

/// What one instruction multiplies. It adds the exact sum of its 64 products to the sum that it has, and cuts off what is
/// below the last bit of that.
pub(in crate::path) fn factors() -> &'static [Format] {
    &[Format::Nvfp4]
}

/// One lane asks for all products of a block.
pub(in crate::path) fn sharers(_: &Tcgen05Layout, _: &Variant) -> Sharers {
    Sharers { count: 1, depth: K_DEPTH }
}

/// Blocks of zeros that are multiplied behind the end of K: it stops there.
pub(in crate::path) fn zeros(_: &Problem, _: &Variant) -> u32 {
    0
}
