//! What the templates may name: values, and files by name.

use serde::Serialize;

use crate::format::Format;
use crate::operand::Params;
use crate::spec::{EARLY_PREPASS, MmaLayout, PREPASS, PrepassShape, Spec, WgmmaLayout};

/// What every matrix template names.
#[derive(Serialize)]
struct Names {
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
    prepass: PrepassShape,
    early_prepass: PrepassShape,
    compute: &'static str,
    scales: &'static str,
    schedule: String,
    warps: &'static str,
    fusion: &'static str,
    activation: &'static str,
    params: &'static str,
    row_scale: &'static str,
    bias: &'static str,
    c: &'static str,
    epilogue: &'static str,
    result: &'static str,
}

impl Names {
    fn new(spec: &Spec) -> Self {
        let (problem, variant, geometry) = (spec.problem(), spec.variant(), spec.geometry());
        let schedule = if problem.groups().is_some() { "grouped" } else { "single" };
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
            prepass: PREPASS,
            early_prepass: EARLY_PREPASS,
            compute: problem.compute_format().word(),
            scales: problem.scale_layout().word(),
            schedule: if variant.persistent { format!("{schedule}_persistent") } else { schedule.to_owned() },
            warps: variant.warps.word(),
            fusion: variant.fusion.word(),
            activation: problem.operation().activation().word(),
            params: Params::cuda_name(problem),
            row_scale: if problem.has_row_scale() { Format::F32.word() } else { "none" },
            bias: problem.bias_format().map_or("none", Format::word),
            c: problem.c_format().word(),
            epilogue: variant.epilogue.word(),
            result: if spec.finish_symbol().is_some() { "partial" } else { "final" },
        }
    }
}

/// What `mma.cu` names.
#[derive(Serialize)]
pub(super) struct MmaNames {
    #[serde(flatten)]
    names: Names,
    warps_tokens: u32,
    warps_columns: u32,
    warps_k: u32,
    load_a: &'static str,
    load_b: &'static str,
    tile_a: &'static str,
    tile_b: &'static str,
}

/// Rows of 16-bit values: the header that loads them, and its tile.
const HALF: (&str, &str) = ("half", "HalfTile");

impl MmaNames {
    pub(super) fn new(spec: &Spec, layout: &MmaLayout) -> Self {
        let (load_a, tile_a) = match spec.problem().a_format() {
            Format::Nvfp4 => ("decoded", "DecodedTile"),
            Format::F16 | Format::Bf16 | Format::F32 => HALF,
        };
        let (load_b, tile_b) = match spec.problem().b_format() {
            Format::Nvfp4 => ("nvfp4", "Nvfp4Tile"),
            Format::F16 | Format::Bf16 | Format::F32 => HALF,
        };
        let MmaLayout { warps_tokens, warps_columns, warps_k } = *layout;
        Self { names: Names::new(spec), warps_tokens, warps_columns, warps_k, load_a, load_b, tile_a, tile_b }
    }
}

/// What `wgmma.cu` names.
#[derive(Serialize)]
pub(super) struct WgmmaNames {
    #[serde(flatten)]
    names: Names,
    cluster_splits: u32,
    multicast: u32,
    persistent: bool,
    has_prepass: bool,
    tiles_per_part: u32,
    k_groups: u32,
    product_groups: u32,
    tile_groups: u32,
    passes: u32,
    decoding_warps: u32,
    empty_arrivals: u32,
    barriers_offset: u32,
    table_offset: u32,
    scratch_offset: u32,
    scratch_bytes: u32,
    exchange_offset: u32,
    exchange_bytes: u32,
    load_tokens: &'static str,
    width_list: String,
    widths: Vec<Width>,
}

/// One width of the matrix instruction, with what its inline PTX says of the registers `sum0`, `sum1`, … it adds to.
#[derive(Serialize)]
struct Width {
    tokens: u32,
    /// Their names.
    sums: String,
    /// Instructions that set them to zero.
    clear: String,
    /// Instructions that copy them into the operands `%0`, `%1`, …
    read: String,
    /// Those operands.
    outputs: String,
}

impl Width {
    fn new(tokens: u32) -> Self {
        let list = |separator, item: fn(u32) -> String| (0..tokens / 2).map(item).collect::<Vec<_>>().join(separator);
        Self {
            tokens,
            sums: list(",", |i| format!("sum{i}")),
            clear: list(" ", |i| format!("mov.f32 sum{i}, 0f00000000;")),
            read: list(" ", |i| format!("mov.f32 %{i}, sum{i};")),
            outputs: list(",", |i| format!("\"=f\"(sums[{i}])")),
        }
    }
}

impl WgmmaNames {
    pub(super) fn new(spec: &Spec, layout: &WgmmaLayout) -> Self {
        let variant = spec.variant();
        let widths: Vec<u32> = layout.widths(variant).collect();
        let multicast = variant.cluster.multicast();
        Self {
            names: Names::new(spec),
            cluster_splits: variant.cluster.splits(),
            multicast,
            persistent: variant.persistent,
            has_prepass: variant.prepass,
            tiles_per_part: layout.tiles_per_part,
            k_groups: layout.k_groups,
            product_groups: layout.product_groups,
            tile_groups: layout.tile_groups,
            passes: layout.passes,
            decoding_warps: layout.decoding_warps,
            empty_arrivals: layout.empty_arrivals,
            barriers_offset: layout.barriers_offset,
            table_offset: layout.table_offset,
            scratch_offset: layout.scratch_offset,
            scratch_bytes: layout.scratch_bytes,
            exchange_offset: layout.exchange_offset,
            exchange_bytes: layout.exchange_bytes,
            load_tokens: match () {
                () if layout.decodes_tokens() => "decoded",
                () if multicast > 1 => "multicast",
                () => "tma",
            },
            width_list: widths.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
            widths: widths.into_iter().map(Width::new).collect(),
        }
    }
}
