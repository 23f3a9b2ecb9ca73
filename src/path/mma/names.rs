//! The path's CUDA, and what that names.

use super::Layout;
use crate::format::Format;
use crate::path::Variant;
use crate::path::names::{Cuda, Names, templates};
use crate::problem::Problem;

/// Its templates and headers.
pub(in crate::path) fn cuda() -> Cuda {
    Cuda {
        templates: templates!["mma/kernel.cu"],
        headers: templates![
            "mma/load/decoded.cuh",
            "mma/load/gathered.cuh",
            "mma/load/gathered_decoded.cuh",
            "mma/load/half.cuh",
            "mma/load/mxfp4.cuh",
            "mma/load/nvfp4.cuh",
            "mma/warps/uniform.cuh",
        ],
    }
}

/// Rows of 16-bit values: the header that loads them, and its tile.
const HALF: (&str, &str) = ("half", "HalfTile");

/// What its templates name beside what all do.
pub(in crate::path) fn names(layout: &Layout, problem: &Problem, _: &Variant) -> Names {
    let (load_a, tile_a) = match problem.a_format() {
        Format::Nvfp4 if problem.is_gathered() => ("gathered_decoded", "GatheredDecodedTile"),
        Format::Nvfp4 => ("decoded", "DecodedTile"),
        _ if problem.is_gathered() => ("gathered", "GatheredTile"),
        _ => HALF,
    };
    let (load_b, tile_b) = match problem.b_format() {
        Format::Nvfp4 => ("nvfp4", "Nvfp4Tile"),
        Format::Mxfp4 => ("mxfp4", "Mxfp4Tile"),
        Format::E4m3 | Format::F16 | Format::Bf16 | Format::F32 => HALF,
    };
    let mut names = layout.names();
    names.extend([
        ("load_a", load_a.into()),
        ("load_b", load_b.into()),
        ("tile_a", tile_a.into()),
        ("tile_b", tile_b.into()),
    ]);
    names
}
