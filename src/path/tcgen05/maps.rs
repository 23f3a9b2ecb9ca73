//! How operands come to the matrix kernel.

use super::geometry::{ROWS, Tcgen05Layout};
use crate::path::{Cluster, CodeBoxes, Rows, ScaleLoads, Tokens, Variant};

/// Whether the tensor memory accelerator loads block scales: those of a pair that are loaded at all. Plain bulk copies count at
/// barriers of their own block only; where that is enough, others have found them faster than maps.
pub(super) fn maps_scales(layout: &Tcgen05Layout, variant: &Variant) -> bool {
    variant.cluster == Cluster::Pair && (layout.loaded_weight_scales || layout.loaded_token_scales)
}

/// Codes of tokens, where they are in order, and of weights by the tensor memory accelerator, a tile's rows and 256 of K at a
/// time.
pub(in crate::path) fn tokens(layout: &Tcgen05Layout, variant: &Variant) -> Tokens {
    let wide = layout.width / layout.tile_blocks;
    let (tokens, weights) = match variant.rows {
        Rows::Weights => (wide, ROWS),
        Rows::Tokens => (ROWS, wide),
    };
    let scales = |are_loaded: bool| match (are_loaded, maps_scales(layout, variant)) {
        (false, _) => ScaleLoads::Copied,
        (true, false) => ScaleLoads::Bulk,
        (true, true) => ScaleLoads::Mapped,
    };
    Tokens::Codes(CodeBoxes {
        tokens: (!layout.is_gathered).then_some(tokens),
        weights,
        token_scales: scales(layout.loaded_token_scales),
        weight_scales: scales(layout.loaded_weight_scales),
    })
}
