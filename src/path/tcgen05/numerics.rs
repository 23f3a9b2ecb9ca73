//! In which order it adds up.

use super::geometry::{K_DEPTH, Tcgen05Layout};
use crate::path::{Sharers, Variant};
use crate::problem::Problem;

/// Elements along K that one instruction multiplies.
pub(in crate::path) fn step() -> u32 {
    64
}

/// One lane asks for all products of a block.
pub(in crate::path) fn sharers(_: &Tcgen05Layout, _: &Variant) -> Sharers {
    Sharers { count: 1, depth: K_DEPTH }
}

/// Blocks of zeros that are multiplied behind the end of K: it stops there.
pub(in crate::path) fn zeros(_: &Problem, _: &Variant) -> u32 {
    0
}
