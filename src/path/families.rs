//! Which variants are predicted, of all that there are: families of them, each by one that stands for all its tokens, stages
//! and epilogues.

/// Rows have no use for tiles below this, where there are many.
pub(crate) const TALL: u32 = 64;

/// What a family meets with tiles of some height.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Tokens of a tile.
    pub(crate) tokens: u32,
    /// Rows of a group, if all have the same number.
    pub(crate) rows: u32,
    /// Blocks that there are, before K is split.
    pub(crate) blocks: u32,
    /// And SMs for them.
    pub(crate) sms: u32,
}

/// Depths at which one of a family is predicted first.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Depths {
    /// The first two of these that are legal.
    Of(&'static [u32]),
    /// As deep as can be when an SM has one block, two, … of those that it would have.
    Deepest,
}
