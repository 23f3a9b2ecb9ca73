//! How tokens come to the matrix kernel.

use super::Layout;
use crate::path::{Tokens, Variant};

/// Every warp loads, by `cp.async`.
pub(in crate::path) fn tokens(_: &Layout, _: &Variant) -> Tokens {
    Tokens::Loaded
}
