//! The path's CUDA, and what that names.

use super::Layout;
use crate::path::Variant;
use crate::path::names::{Cuda, Names, templates};
use crate::problem::Problem;

/// Its templates and headers.
pub(in crate::path) fn cuda() -> Cuda {
    Cuda {
        templates: templates!["mxf4/kernel.cu"],
        headers: templates!["mxf4/load/gathered.cuh", "mxf4/load/nvfp4.cuh", "mxf4/ptx.cuh", "mxf4/warps/uniform.cuh"],
    }
}

/// What its templates name beside what all do.
pub(in crate::path) fn names(layout: &Layout, problem: &Problem, _: &Variant) -> Names {
    let (load_a, tile_a) = if problem.is_gathered() { ("gathered", "GatheredTile") } else { ("nvfp4", "Nvfp4Tile") };
    let mut names = layout.names();
    names.extend([("load_a", load_a.into()), ("tile_a", tile_a.into()), ("tile_b", "Nvfp4Tile".into())]);
    names
}
