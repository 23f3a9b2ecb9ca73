//! How tokens come to the matrix kernel.

use super::geometry::MmaLayout;
use crate::path::{Tokens, Variant};

/// Every warp loads, by `cp.async`.
pub(in crate::path) fn tokens(_: &MmaLayout, _: &Variant) -> Tokens {
    Tokens::Loaded
}
