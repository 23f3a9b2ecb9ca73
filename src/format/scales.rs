//! Where the block scales of an NVFP4 operand lie, and the way from one layout to the other.
//!
//! The 128x4 layout (cuBLASLt's "1D block scaling factors layout"; PTX ISA, `tcgen05` scale factors) stores atoms of
//! 128 rows × 4 blocks in 512 bytes, the atoms of a row of atoms one after the other. Inside an atom, rows 32 apart are
//! neighbours, so that 16 bytes hold four scales of each of the rows r, r+32, r+64 and r+96:
//!
//! ```text
//! byte of the atom = (row % 32)·16 + (row % 128 / 32)·4 + block % 4
//! ```

use super::ScaleLayout;
use crate::error::{Error, Result};

/// Elements along k that share one block scale.
pub const BLOCK: usize = 16;

const ATOM_ROWS: usize = 128;
const ATOM_BLOCKS: usize = 4;
const ATOM_BYTES: usize = ATOM_ROWS * ATOM_BLOCKS;

impl ScaleLayout {
    /// Bytes that the scales of a `[rows, k]` operand take, padding included; `k` is a multiple of [`BLOCK`]. More than can be
    /// counted are `usize::MAX`, which no memory has.
    ///
    /// ```
    /// use warpsmith::format::ScaleLayout;
    /// assert_eq!(ScaleLayout::Linear.bytes(40, 64), 40 * 4);
    /// assert_eq!(ScaleLayout::Swizzled128x4.bytes(40, 64), 512);
    /// ```
    #[must_use]
    pub fn bytes(self, rows: usize, k: usize) -> usize {
        let blocks = k / BLOCK;
        match self {
            ScaleLayout::Linear => rows.saturating_mul(blocks),
            ScaleLayout::Swizzled128x4 => {
                let atoms = rows.div_ceil(ATOM_ROWS).saturating_mul(blocks.div_ceil(ATOM_BLOCKS));
                atoms.saturating_mul(ATOM_BYTES)
            }
        }
    }

    /// Rows that scales are kept for at a time.
    pub(crate) fn rows(self) -> usize {
        match self {
            ScaleLayout::Linear => 1,
            ScaleLayout::Swizzled128x4 => ATOM_ROWS,
        }
    }

    /// The byte that holds the scale of elements `[row, 16·block .. 16·block + 16]` of an operand with `k` columns.
    #[must_use]
    pub fn offset(self, k: usize, row: usize, block: usize) -> usize {
        let blocks = k / BLOCK;
        match self {
            ScaleLayout::Linear => row * blocks + block,
            ScaleLayout::Swizzled128x4 => {
                let atom = row / ATOM_ROWS * blocks.div_ceil(ATOM_BLOCKS) + block / ATOM_BLOCKS;
                atom * ATOM_BYTES + row % 32 * 16 + row % ATOM_ROWS / 32 * 4 + block % ATOM_BLOCKS
            }
        }
    }

    /// The same scales in another layout. What `self` holds as padding is not read; what `to` needs as padding becomes
    /// `padding`.
    ///
    /// # Errors
    /// [`Error::is_data`] if `k` is no multiple of [`BLOCK`] or `scales` has not the bytes that `self` takes.
    pub fn convert(self, scales: &[u8], rows: usize, k: usize, to: ScaleLayout, padding: u8) -> Result<Vec<u8>> {
        self.check(scales, rows, k)?;
        let mut converted = vec![padding; to.bytes(rows, k)];
        if scales.is_empty() {
            // Nothing bounds the other extent, which nobody may count through.
            return Ok(converted);
        }
        for row in 0..rows {
            for block in 0..k / BLOCK {
                converted[to.offset(k, row, block)] = scales[self.offset(k, row, block)];
            }
        }
        Ok(converted)
    }

    pub(super) fn check(self, scales: &[u8], rows: usize, k: usize) -> Result<()> {
        if !k.is_multiple_of(BLOCK) {
            return Err(Error::data(format!("k = {k} is not a multiple of the block of {BLOCK}")));
        }
        let needed = self.bytes(rows, k);
        if scales.len() != needed {
            let found = scales.len();
            return Err(Error::data(format!("{rows}×{k} has {needed} bytes of {self} scales, found {found}")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use ScaleLayout::{Linear, Swizzled128x4};

    #[test]
    fn known_bytes_of_the_128x4_layout() {
        // Offsets counted by hand in cuBLASLt's picture of an atom; k = 128 has 8 blocks, two atoms a row of atoms.
        for ((row, block), offset) in [
            ((0, 0), 0),
            ((0, 3), 3),
            ((32, 0), 4),
            ((96, 2), 14),
            ((1, 0), 16),
            ((31, 0), 496),
            ((127, 3), 511),
            ((0, 4), 512),
            ((128, 0), 1024),
        ] {
            assert_eq!(Swizzled128x4.offset(128, row, block), offset, "row {row}, block {block}");
        }
    }

    #[test]
    fn sizes_are_padded_to_whole_atoms() {
        assert_eq!(Swizzled128x4.bytes(128, 64), 512);
        assert_eq!(Swizzled128x4.bytes(129, 80), 4 * 512);
        assert_eq!(Swizzled128x4.bytes(0, 64), 0);
        assert_eq!(Linear.bytes(129, 80), 129 * 5);
    }

    #[test]
    fn wrong_lengths_are_refused_with_both_numbers() {
        let error = Linear.convert(&[0; 7], 2, 64, Swizzled128x4, 0).unwrap_err();
        assert!(error.is_data());
        assert_eq!(error.to_string(), "2×64 has 8 bytes of linear scales, found 7");
        let error = Linear.convert(&[0; 7], 2, 65, Swizzled128x4, 0).unwrap_err();
        assert_eq!(error.to_string(), "k = 65 is not a multiple of the block of 16");
    }

    proptest! {
        #[test]
        fn there_and_back_is_the_same_whatever_the_padding(
            rows in 0usize..300, blocks in 0usize..11, padding: u8, seed: u8,
        ) {
            let k = blocks * BLOCK;
            let scales: Vec<u8> = (0..rows * blocks).map(|i| (i * 31) as u8 ^ seed).collect();
            let swizzled = Linear.convert(&scales, rows, k, Swizzled128x4, padding).unwrap();
            prop_assert_eq!(swizzled.len(), Swizzled128x4.bytes(rows, k));
            prop_assert_eq!(Swizzled128x4.convert(&swizzled, rows, k, Linear, 0).unwrap(), scales);
        }

        #[test]
        fn no_two_scales_share_a_byte(rows in 1usize..300, blocks in 1usize..11) {
            let k = blocks * BLOCK;
            let mut taken = vec![false; Swizzled128x4.bytes(rows, k)];
            for (row, block) in (0..rows).flat_map(|row| (0..blocks).map(move |block| (row, block))) {
                let byte = &mut taken[Swizzled128x4.offset(k, row, block)];
                prop_assert!(!*byte);
                *byte = true;
            }
        }
    }
}
