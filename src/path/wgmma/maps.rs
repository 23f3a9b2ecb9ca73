//! How tokens come to the matrix kernel.

use super::geometry::WgmmaLayout;
use crate::path::geometry::{K_BLOCK, WIDTHS_MAX};
use crate::path::{Boxes, Tokens, Variant};

/// By the tensor memory accelerator, unless warps of the kernel decode them.
pub(in crate::path) fn tokens(layout: &WgmmaLayout, variant: &Variant) -> Tokens {
    match () {
        () if variant.prepass => Tokens::Decoded(boxes(layout, variant)),
        () if layout.token_warps > 0 => Tokens::Loaded,
        () => Tokens::Mapped(boxes(layout, variant)),
    }
}

/// A box is a whole stage of rows; each block of a multicasting cluster loads a part of it.
fn boxes(layout: &WgmmaLayout, variant: &Variant) -> Boxes {
    let (blocks, parts) = (variant.tile.k / K_BLOCK, variant.cluster.multicast());
    let (blocks, row_parts) = if blocks == 1 { (1, parts) } else { (blocks / parts, 1) };
    let mut rows = [0; WIDTHS_MAX];
    for (rows, width) in rows.iter_mut().zip(layout.widths(variant)) {
        *rows = width / row_parts;
    }
    Boxes { rows, blocks, has_few: layout.has_few }
}
