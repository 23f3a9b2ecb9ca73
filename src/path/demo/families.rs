//! Which families of variants are worth a look.

use super::geometry::DemoLayout;
use crate::path::families::{Depths, Load};
use crate::path::{Epilogue, Fusion, Variant};
use crate::problem::Problem;

/// How products may be fused by the best of all.
pub(in crate::path) fn fusions(_: &Problem) -> &'static [Fusion] {
    &[Fusion::Single]
}

/// Whether the best of all may be of this family.
pub(in crate::path) fn is_family(_: &Problem, _: &Variant) -> bool {
    true
}

/// The height of a family's tiles when it is to be so many tokens or little more; none, if it has no use for them.
pub(in crate::path) fn height(_: &Problem, _: &Variant, tokens: u32) -> Option<u32> {
    Some(tokens)
}

/// Whether one of a family may be the best with this.
pub(in crate::path) fn is_worth(_: &Variant, _: &Load) -> bool {
    true
}

/// How a variant's result leaves, most likely.
pub(in crate::path) fn epilogue(_: &Problem, _: &Variant) -> Epilogue {
    Epilogue::Direct
}

/// Depths at which one of a family is predicted first.
pub(in crate::path) fn depths() -> Depths {
    Depths::Deepest
}

/// And around a good one with so many stages; all of K has `whole`.
pub(in crate::path) fn depths_around(_: &DemoLayout, stages: u32, whole: u32) -> Vec<u32> {
    vec![stages, whole]
}
