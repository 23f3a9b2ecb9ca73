//! The path `mxf4`: as `mma`, but NVFP4 tokens and NVFP4 weights are multiplied as they are.

pub(super) mod axes;
pub(super) mod cost;
pub(super) mod geometry;
pub(super) mod legal;
pub(super) mod maps;
pub(super) mod names;
pub(super) mod numerics;

pub(super) use super::mma_sync::WarpGrid as Layout;
