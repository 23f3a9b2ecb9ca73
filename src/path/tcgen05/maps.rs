//! How operands come to the matrix kernel.

use super::geometry::{ROWS, Tcgen05Layout};
use crate::path::{CodeBoxes, Rows, Tokens, Variant};

/// Codes of tokens and of weights by the tensor memory accelerator, a tile's rows and 256 of K at a time.
pub(in crate::path) fn tokens(layout: &Tcgen05Layout, variant: &Variant) -> Tokens {
    let wide = layout.width / layout.tile_blocks;
    Tokens::Codes(match variant.rows {
        Rows::Weights => CodeBoxes { tokens: wide, weights: ROWS },
        Rows::Tokens => CodeBoxes { tokens: ROWS, weights: wide },
    })
}
