//! The path `tcgen05`: NVFP4 tokens and NVFP4 weights, as they are given, from shared memory into tensor memory.

pub(super) mod axes;
pub(super) mod cost;
pub(super) mod geometry;
pub(super) mod legal;
pub(super) mod maps;
pub(super) mod names;
pub(super) mod numerics;

pub(super) use geometry::Tcgen05Layout as Layout;
