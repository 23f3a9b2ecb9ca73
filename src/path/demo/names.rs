//! The path's CUDA, and what that names.

use super::geometry::DemoLayout;
use crate::path::Variant;
use crate::path::names::{Cuda, Names, templates};
use crate::problem::Problem;

/// Its templates and headers.
pub(in crate::path) fn cuda() -> Cuda {
    Cuda { templates: templates!["demo/kernel.cu"], headers: &[] }
}

/// What its templates name beside what all do.
pub(in crate::path) fn names(_: &DemoLayout, _: &Problem, _: &Variant) -> Names {
    vec![("does", "nothing".into())]
}
