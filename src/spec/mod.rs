//! What, how and where, checked together.
//!
//! [`Problem`] says *what* is computed, [`Variant`] *how*, [`Arch`] *on what*. [`Spec`] is the proof that the three
//! fit: only [`Spec::new`] makes one, and rendering, building and launching take nothing else. Everything that
//! follows from the three (threads, shared memory, grid, workspace, symbol names) is derived here and nowhere else; what
//! depends on the matrix path, by that.
//!
//! Plain data: no input or output.

mod checked;
pub(crate) mod depth;
mod legal;
mod numerics;
pub(crate) mod passes;
pub(crate) mod space;
mod spread;

pub use crate::arch::{Arch, ComputeCapability, DeviceFacts};
pub(crate) use crate::path::{Axes, BLOCKS_PER_SM_MAX, CONSUMERS_MAX, Layout, tile_columns};
pub(crate) use crate::path::{Cluster, Epilogue, Fusion, Geometry, Rows, Tile, Warps};
pub use crate::path::{MatrixPath, Refusal, Variant};
pub use crate::problem::{Activation, Operation, Problem};
pub(crate) use crate::routing::Routing;
pub use crate::simt::{Combine, Quantise, Route, RouteLists, Scoring};
pub use checked::Spec;
pub(crate) use depth::STAGES_MAX;
pub(crate) use depth::deepest;
pub use numerics::Numerics;
pub(crate) use passes::Launch;
pub(crate) use passes::PassKind;
pub(crate) use passes::blocks;
pub(crate) use space::{baseline, candidates};
pub(crate) use spread::Spread;
