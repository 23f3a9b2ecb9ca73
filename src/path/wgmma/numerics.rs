//! In which order it adds up.

use crate::format::Format;
use crate::path::wgmma::geometry::WgmmaLayout;
use crate::path::{Sharers, Variant};
use crate::problem::Problem;

/// Elements along K that one instruction multiplies: 32 bytes of each row.
pub(in crate::path) fn step(compute: Format) -> u32 {
    if compute == Format::E4m3 { 32 } else { 16 }
}

/// What one instruction multiplies.
pub(in crate::path) fn factors() -> &'static [Format] {
    &[Format::F16, Format::Bf16, Format::E4m3]
}

/// Warpgroups take turns with the stages.
pub(in crate::path) fn sharers(layout: &WgmmaLayout, variant: &Variant) -> Sharers {
    Sharers { count: layout.k_groups, depth: variant.tile.k }
}

/// Blocks of zeros that are multiplied behind the end of K: it stops there.
pub(in crate::path) fn zeros(_: &Problem, _: &Variant) -> u32 {
    0
}
