//! How tokens come to the matrix kernel.

use super::geometry::WIDTHS_MAX;

/// Where the matrix kernel reads tokens, and what else it reads as they are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tokens {
    /// It loads A itself.
    Loaded,
    /// The tensor memory accelerator loads A.
    Mapped(Boxes),
    /// It loads what the prepass has decoded.
    Decoded(Boxes),
    /// It loads the codes of A and of weights, or those and their block scales.
    Codes(CodeBoxes),
}

/// The boxes that the tensor memory accelerator loads: of rows of 64 elements along K.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Boxes {
    /// Rows of the box of each width that a tile may have, ascending; 0 where there are fewer widths.
    pub(crate) rows: [u32; WIDTHS_MAX],
    /// Blocks of K of a box.
    pub(crate) blocks: u32,
    /// A last tile of fewer rows is loaded by a box of as many, and of one block of K, whose map comes behind those of the widths.
    pub(crate) has_few: bool,
}

/// The boxes of codes: of so many rows of 256 elements along K.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodeBoxes {
    /// None, where the kernel copies tokens itself.
    pub(crate) tokens: Option<u32>,
    pub(crate) weights: u32,
    pub(crate) token_scales: ScaleLoads,
    pub(crate) weight_scales: ScaleLoads,
}

/// How block scales come to shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScaleLoads {
    /// By four bytes.
    Copied,
    /// By bulk copies, which begin at a multiple of 16 bytes.
    Bulk,
    /// By boxes as codes are: 128 rows and 256 along K.
    Mapped,
}
