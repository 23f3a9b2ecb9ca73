//! How tokens come to the matrix kernel.

use super::geometry::DemoLayout;
use crate::path::{Tokens, Variant};

/// By itself.
pub(in crate::path) fn tokens(_: &DemoLayout, _: &Variant) -> Tokens {
    Tokens::Loaded
}
