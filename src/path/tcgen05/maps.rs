//! How operands come to the matrix kernel.

use super::geometry::{ROWS, Tcgen05Layout};
use crate::path::{CodeBoxes, Rows, Tokens, Variant};

/// Codes of tokens, where they are in order, and of weights by the tensor memory accelerator, a tile's rows and 256 of K at a
/// time.
pub(in crate::path) fn tokens(layout: &Tcgen05Layout, variant: &Variant) -> Tokens {
    let wide = layout.width / layout.tile_blocks;
    let (tokens, weights) = match variant.rows {
        Rows::Weights => (wide, ROWS),
        Rows::Tokens => (ROWS, wide),
    };
    Tokens::Codes(CodeBoxes { tokens: (!layout.is_gathered).then_some(tokens), weights })
}
