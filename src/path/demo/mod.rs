//! The path `demo`: what a path must have at least, for tests; a new one may begin as a copy. It has no matrix
//! instructions, and its kernel does nothing.

pub(super) mod axes;
pub(super) mod cost;
pub(super) mod geometry;
pub(super) mod legal;
pub(super) mod maps;
pub(super) mod names;
pub(super) mod numerics;

pub(super) use geometry::DemoLayout as Layout;
