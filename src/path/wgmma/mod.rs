//! The path `wgmma`: warps that load, warpgroups that multiply prepared weights with tokens.

pub(super) mod axes;
pub(super) mod cost;
pub(super) mod geometry;
mod instruction;
pub(super) mod legal;
pub(super) mod maps;
pub(super) mod names;
pub(super) mod numerics;
mod registers;

pub(crate) use cost::{least_decoding, least_start, least_stores};
pub(super) use geometry::WgmmaLayout as Layout;
pub(crate) use geometry::tile_columns;
pub(crate) use legal::CONSUMERS_MAX;
