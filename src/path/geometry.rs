//! What follows from a problem and a variant: how a block's memory and warps are shared, what is launched.

mod mma;
mod passes;
mod wgmma;

pub(crate) use mma::MmaLayout;
pub(crate) use passes::{EARLY_PREPASS, Launch, PREPASS, PrepassShape};
pub use passes::{Pass, PassKind};
pub(super) use passes::{decoded_row_bytes, early_prepass, launches, needs_finish, partial_row_bytes};
pub(crate) use wgmma::{DECODING_WARPS_MAX, WgmmaLayout, tile_columns};
pub(super) use wgmma::{Sharing, decodes_tokens};

use super::{Arch, MatrixPath, Problem, Variant};
use crate::format::Format;

/// K is cut into blocks of this many elements: 128 bytes of 16-bit values, 32 bytes of codes and 4 scales.
pub(crate) const K_BLOCK: u32 = 64;
/// More resident blocks than this hide no more latency.
const BLOCKS_PER_SM_MAX: u32 = 4;

/// Sizes derived from a problem and a variant. All of shared memory is dynamic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Geometry {
    /// Threads of one block.
    pub threads: u32,
    /// Bytes of one pipeline stage.
    pub stage_bytes: u32,
    /// Dynamic shared memory of one block.
    pub shared_bytes: u32,
    /// fp32 accumulators of one thread.
    pub accumulators: u32,
    /// Registers that one thread needs at least, accumulators included.
    pub registers: u32,
    /// Blocks that one SM should hold at a time: what shared memory and the estimated registers allow, four at most; one
    /// where blocks are persistent.
    /// The compiler is told, so that it does not spend registers that another block needs.
    pub blocks_per_sm: u32,
    pub(crate) layout: Layout,
}

/// What only one matrix path knows of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Layout {
    Mma(MmaLayout),
    Wgmma(WgmmaLayout),
}

impl Geometry {
    pub(crate) fn new(problem: &Problem, variant: &Variant, arch: &Arch) -> Self {
        let mut geometry = match variant.path {
            MatrixPath::Mma => mma::geometry(problem, variant),
            MatrixPath::Wgmma => wgmma::geometry(problem, variant),
        };
        let resident = arch.blocks_per_sm(geometry.threads, geometry.shared_bytes, geometry.registers);
        // A persistent block has an SM to itself.
        let most = if variant.persistent { 1 } else { BLOCKS_PER_SM_MAX };
        geometry.blocks_per_sm = resident.clamp(1, most);
        geometry
    }
}

/// Shared memory of a tile of `rows` × `k` elements: codes or values, and four scales a row for each K block.
fn rows_bytes(format: Format, rows: u32, k: u32) -> u32 {
    let values = format.bytes(k as usize) as u32;
    let scales = if format == Format::Nvfp4 { k / 16 } else { 0 };
    rows * (values + scales)
}
