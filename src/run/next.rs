//! What the launch behind one reads first.

use super::weights::{PreparedWeights, Weights};
use crate::operand::KernelParams;
use crate::spec::{Problem, Spec};

/// The weights that the launch behind one reads first ([`Plan::reads_first`](crate::engine::Plan::reads_first)). A kernel that
/// knows them ([`Operands::next`](super::Operands::next)) asks the L2 cache for them when its own have come, so that memory is
/// not idle while one kernel ends and the other begins. Nothing is computed from them.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct NextWeights<'a> {
    weights: &'a PreparedWeights,
    /// Of each group: the m64 tiles, each in as many parts as blocks share its K.
    strips: u32,
    /// From one to the next.
    stride: u64,
    /// Of each.
    bytes: u32,
}

impl<'a> NextWeights<'a> {
    /// All of them together are at most so many: what memory delivers from one kernel to the next.
    pub const BYTES_MAX: u64 = 8 << 20;
    /// The same of one group, whose kernels begin with their weights sooner: more of them came later than without.
    const BYTES_MAX_ONE_GROUP: u64 = 4 << 20;

    /// What `spec` reads first for `m` rows; none, where weights are not prepared or so little of each tile is that it is not
    /// worth the asking.
    pub(crate) fn of(spec: &Spec, m: u32, weights: &'a Weights<'a>) -> Option<Self> {
        let Weights::Prepared(weights) = weights else { return None };
        let (layout, variant) = (weights.layout(), spec.variant());
        let splits = variant.split_k * variant.cluster.splits();
        let (block, strips) = (layout.block_bytes() as u64, layout.tiles_per_group() * splits);
        let stride = u64::from(layout.blocks_per_tile() / splits) * block;
        let hit = u64::from(layout.groups().min(m.max(1)));
        let most = if layout.groups() > 1 { Self::BYTES_MAX } else { Self::BYTES_MAX_ONE_GROUP };
        let each = stride.min(most / (hit * u64::from(strips)));
        // Whole lines of the cache.
        let bytes = each - each % 128;
        (bytes >= block).then_some(Self { weights, strips, stride, bytes: bytes as u32 })
    }

    #[inline]
    pub(super) fn weights(&self) -> &'a PreparedWeights {
        self.weights
    }

    /// All but the address, for a launch of `problem`. Its kernels ask by the groups of their own tiles: of weights with fewer, that would
    /// be behind their end, of others what nobody reads first. So of these it asks for nothing.
    #[inline]
    pub(super) fn note(&self, problem: &Problem, params: &mut KernelParams) {
        if self.weights.layout().groups() != problem.groups().unwrap_or(1) {
            return;
        }
        params.next_stride = self.stride;
        params.next_strips = self.strips as i32;
        params.next_bytes = self.bytes;
    }
}
