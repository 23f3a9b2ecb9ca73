//! The path's CUDA, and what that names.

use super::geometry::Tcgen05Layout;
use super::maps::maps_scales;
use crate::path::names::{Cuda, Names, templates};
use crate::path::{Cluster, Rows, Variant};
use crate::problem::Problem;

/// Its templates and headers.
pub(in crate::path) fn cuda() -> Cuda {
    Cuda {
        templates: templates!["tcgen05/kernel.cu"],
        headers: templates![
            "tcgen05/layout.cuh",
            "tcgen05/load.cuh",
            "tcgen05/multiply.cuh",
            "tcgen05/pipeline.cuh",
            "tcgen05/ptx.cuh",
            "tcgen05/result/final.cuh",
            "tcgen05/result/partial.cuh",
            "tcgen05/scales/bulk.cuh",
            "tcgen05/scales/copied.cuh",
            "tcgen05/scales/mapped.cuh",
            "tcgen05/scales/rows.cuh",
            "tcgen05/scales/scales.cuh",
            "tcgen05/schedule/grouped.cuh",
            "tcgen05/schedule/single.cuh",
            "tcgen05/side/column.cuh",
            "tcgen05/side/columns.cuh",
            "tcgen05/side/rows.cuh",
            "tcgen05/side/transposed.cuh",
            "tcgen05/store.cuh",
            "tcgen05/tokens/gathered.cuh",
            "tcgen05/tokens/mapped.cuh",
        ],
    }
}

/// What its templates name beside what all do.
pub(in crate::path) fn names(layout: &Tcgen05Layout, problem: &Problem, variant: &Variant) -> Names {
    let side = match variant.rows {
        Rows::Weights if problem.c_format().is_coded() => "transposed",
        Rows::Weights => "columns",
        Rows::Tokens => "rows",
    };
    vec![
        ("pair", (variant.cluster == Cluster::Pair).into()),
        ("persistent", variant.persistent.into()),
        ("gathered", problem.is_gathered().into()),
        ("load_tokens", if problem.is_gathered() { "gathered" } else { "mapped" }.into()),
        ("weight_rows", (variant.rows == Rows::Weights).into()),
        // What tokens are in the instruction, and who stores them.
        ("side", side.into()),
        ("block_products", layout.block_products.into()),
        ("wide_scale_blocks", layout.wide_scale_blocks.into()),
        ("loaded_weight_scales", layout.loaded_weight_scales.into()),
        ("loaded_token_scales", layout.loaded_token_scales.into()),
        ("load_scales", if maps_scales(layout, variant) { "mapped" } else { "bulk" }.into()),
        ("copy_warps", layout.copy_warps.into()),
        ("sum_sets", layout.sum_sets.into()),
        ("scale_slots", layout.scale_slots.into()),
        ("tensor_columns", layout.tensor_columns.into()),
        ("barriers_offset", layout.barriers_offset.into()),
    ]
}
