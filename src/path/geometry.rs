//! What follows from a problem and a variant: how a block's memory and warps are shared.

use super::{Layout, Variant};
use crate::arch::Arch;
use crate::format::Format;
use crate::problem::Problem;

/// K is cut into blocks of this many elements: 128 bytes of 16-bit values, 32 bytes of codes and 4 scales.
pub(crate) const K_BLOCK: u32 = 64;
/// Widths at most that a tile may be multiplied in.
pub(crate) const WIDTHS_MAX: usize = 5;
/// More resident blocks than this hide no more latency.
pub(crate) const BLOCKS_PER_SM_MAX: u32 = 4;

/// How the kernel that decodes tokens is divided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrepassShape {
    /// Threads of a block.
    pub(crate) threads: u32,
    /// Codes of a thread.
    pub(crate) codes: u32,
}

/// When it begins once all before it is done, and under the kernel before it: templates/wgmma/early_prepass.cu says why they
/// differ.
pub(crate) const PREPASS: PrepassShape = PrepassShape { threads: 512, codes: 8 };
pub(crate) const EARLY_PREPASS: PrepassShape = PrepassShape { threads: 256, codes: 4 };

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

/// How the blocks of the matrix kernel lie in the grid, where each has a tile of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    /// Tiles of tokens go along x and tiles of columns along y, not the other way round.
    pub(crate) tokens_first: bool,
    /// Blocks of a cluster in x, y, z.
    pub(crate) cluster: [u32; 3],
}

impl Geometry {
    #[inline]
    pub(crate) fn new(problem: &Problem, variant: &Variant, arch: &Arch) -> Self {
        let mut geometry = variant.path.geometry(problem, variant);
        let resident = arch.blocks_per_sm(geometry.threads, geometry.shared_bytes, geometry.registers);
        // A persistent block has an SM to itself.
        let most = if variant.persistent { 1 } else { BLOCKS_PER_SM_MAX };
        geometry.blocks_per_sm = resident.clamp(1, most);
        geometry
    }
}

/// A width that a tile may be multiplied in: so many sixteenths of it, rounded up to a multiple of `step`.
pub(super) fn part_width(tokens: u32, sixteenths: u32, step: u32) -> u32 {
    (tokens * sixteenths / 16).next_multiple_of(step)
}

/// Shared memory of a tile of `rows` × `k` elements: codes or values, and four scales a row for each K block.
pub(super) fn rows_bytes(format: Format, rows: u32, k: u32) -> u32 {
    let values = format.bytes(k as usize) as u32;
    // Of MXFP4 two of them are those of the neighbour.
    let scales = if format.is_coded() { k / 16 } else { 0 };
    rows * (values + scales)
}
