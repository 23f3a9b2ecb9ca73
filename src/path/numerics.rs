//! What a path does that decides the bits of a result.

/// Warps (or warpgroups) that share the K of a block, one part after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sharers {
    pub(crate) count: u32,
    /// Elements along K that each takes at a time.
    pub(crate) depth: u32,
}
