//! What the templates may name: values, and files by name. The matrix path has more of them.

use serde::Serialize;

use crate::format::Format;
use crate::operand::Params;
use crate::spec::Spec;

/// What the templates of every path name.
#[derive(Serialize)]
pub(super) struct Names {
    name: String,
    symbol: String,
    n: u32,
    k: u32,
    groups: u32,
    products: u32,
    tokens: u32,
    columns: u32,
    tile_k: u32,
    stages: u32,
    splits: u32,
    stage_bytes: u32,
    shared_bytes: u32,
    blocks_per_sm: u32,
    compute: &'static str,
    scales: &'static str,
    schedule: &'static str,
    warps: &'static str,
    fusion: &'static str,
    activation: &'static str,
    limit: u32,
    params: &'static str,
    row_scale: &'static str,
    destination: &'static str,
    bias: &'static str,
    c: String,
    epilogue: &'static str,
    result: &'static str,
}

impl Names {
    pub(super) fn new(spec: &Spec) -> Self {
        let (problem, variant, geometry) = (spec.problem(), spec.variant(), spec.geometry());
        Self {
            name: spec.name(),
            symbol: spec.symbol(),
            n: problem.columns(),
            k: problem.depth(),
            groups: problem.groups().unwrap_or(1),
            products: problem.operation().products(),
            tokens: variant.tile.tokens,
            columns: variant.tile.columns,
            tile_k: variant.tile.k,
            stages: variant.stages,
            splits: variant.split_k,
            stage_bytes: geometry.stage_bytes,
            shared_bytes: geometry.shared_bytes,
            blocks_per_sm: geometry.blocks_per_sm,
            compute: problem.compute_format().word(),
            scales: problem.scale_layout().word(),
            schedule: if problem.groups().is_some() { "grouped" } else { "single" },
            warps: variant.warps.word(),
            fusion: variant.fusion.word(),
            activation: problem.operation().activation().word(),
            limit: problem.operation().activation().limit().unwrap_or(0),
            params: Params::cuda_name(problem),
            destination: if problem.has_slots() { "slots" } else { "rows" },
            row_scale: if problem.has_row_scale() { Format::F32.word() } else { "none" },
            bias: problem.bias_format().map_or("none", Format::word),
            c: match problem.c_format() {
                Format::Nvfp4 => format!("{}/{}", Format::Nvfp4, problem.scale_layout()),
                format => format.word().to_owned(),
            },
            epilogue: variant.epilogue.word(),
            result: if spec.finish_symbol().is_some() { "partial" } else { "final" },
        }
    }
}
