//! What, how and where, checked together.
//!
//! [`Problem`] says *what* is computed, [`Variant`] *how*, [`Arch`] *on what*. [`Spec`] is the proof that the three
//! fit: only [`Spec::new`] makes one, and rendering, building and launching take nothing else. Everything that
//! follows from the three (threads, shared memory, grid, workspace, symbol names) is derived here and nowhere else.
//!
//! Plain data: no input or output, no CUDA text.

mod arch;
mod checked;
mod depth;
mod geometry;
mod legal;
mod numerics;
pub(crate) mod parse;
mod problem;
mod space;
mod variant;

pub use arch::{Arch, ComputeCapability, DeviceFacts};
pub use checked::{Refusal, Spec};
pub(crate) use depth::STAGES_MAX;
pub use depth::deepest;
pub(crate) use geometry::{
    DECODING_WARPS_MAX, EARLY_PREPASS, Launch, Layout, MmaLayout, PREPASS, PrepassShape, WgmmaLayout, tile_columns,
};
pub use geometry::{Geometry, Pass, PassKind};
pub(crate) use legal::{CONSUMERS_MAX, legal_tokens};
pub use numerics::Numerics;
pub use problem::{Activation, Operation, Problem};
pub(crate) use space::Axes;
pub use space::{baseline, candidates, space};
pub use variant::{Cluster, Epilogue, Fusion, MatrixPath, Tile, Variant, Warps};
