//! Blocks that lie apart.

/// An SM that is free, or falls free, is filled with blocks of the next kernel before the next SM is: where a launch begins under the
/// kernel before it, few blocks would lie on few SMs. Shared memory keeps them apart.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spread {
    sms: u32,
    bytes: [u32; Self::MOST],
}

impl Spread {
    /// Blocks of an SM that are kept apart at most.
    pub(crate) const MOST: usize = 4;

    /// On so many SMs, by dynamic shared memory with which one holds one block, two, and so on, and none more; 0 for so many that they
    /// lie well enough.
    pub(crate) fn new(sms: u32, bytes: [u32; Self::MOST]) -> Self {
        Self { sms, bytes }
    }

    /// Shared memory with which no SM has one of `blocks` more than another, 0 where that takes none.
    #[inline]
    pub(crate) fn bytes(&self, blocks: u32) -> u32 {
        let each = blocks.saturating_sub(1).checked_div(self.sms);
        each.and_then(|more| self.bytes.get(more as usize)).copied().unwrap_or(0)
    }

    /// The most that a block may have of it.
    pub(crate) fn most_bytes(&self) -> u32 {
        self.bytes[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_apart_where_each_can_have_its_place() {
        let spread = Spread::new(132, [40, 30, 20, 10]);
        let blocks = [0, 1, 132, 133, 264, 265, 396, 397, 528, 529];
        assert_eq!(blocks.map(|blocks| spread.bytes(blocks)), [40, 40, 40, 30, 30, 20, 20, 10, 10, 0]);
        assert_eq!(Spread::default().bytes(1), 0);
    }
}
