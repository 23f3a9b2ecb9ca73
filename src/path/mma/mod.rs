//! The path `mma`: warps along columns, tokens and K of a tile; stages of tokens and weights as they are given.

pub(super) mod axes;
pub(super) mod cost;
pub(super) mod geometry;
pub(super) mod legal;
pub(super) mod maps;
pub(super) mod names;
pub(super) mod numerics;

pub(super) use super::mma_sync::WarpGrid as Layout;
