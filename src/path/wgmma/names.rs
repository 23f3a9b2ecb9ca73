//! The path's CUDA, and what that names.

use serde_json::json;

use super::geometry::WgmmaLayout;
use super::instruction::{self, Promotion};
use super::registers::Stage;
use crate::format::Format;
use crate::path::names::{Cuda, Names, templates};
use crate::path::{EARLY_PREPASS, PREPASS, PrepassShape, Variant};
use crate::problem::Problem;

/// Its templates and headers.
pub(in crate::path) fn cuda() -> Cuda {
    Cuda {
        templates: templates!["wgmma/early_prepass.cu", "wgmma/kernel.cu", "wgmma/prepass.cu"],
        headers: templates![
            "wgmma/main_loop.cuh",
            "wgmma/descriptor.cuh",
            "wgmma/decode/bf16.cuh",
            "wgmma/decode/e4m3.cuh",
            "wgmma/decode/f16.cuh",
            "wgmma/epilogue/apart.cuh",
            "wgmma/epilogue/direct.cuh",
            "wgmma/epilogue/shared.cuh",
            "wgmma/epilogue/staged.cuh",
            "wgmma/epilogue/tma.cuh",
            "wgmma/found.cuh",
            "wgmma/fusion/both_products.cuh",
            "wgmma/fusion/interleaved.cuh",
            "wgmma/fusion/one_product.cuh",
            "wgmma/fusion/only_product.cuh",
            "wgmma/fusion/per_product.cuh",
            "wgmma/fusion/ping_pong.cuh",
            "wgmma/fusion/sequential.cuh",
            "wgmma/fusion/single.cuh",
            "wgmma/fusion/two_pass.cuh",
            "wgmma/fusion/whole_rows.cuh",
            "wgmma/instruction/e4m3.cuh",
            "wgmma/instruction/half.cuh",
            "wgmma/instruction/sums.cuh",
            "wgmma/k_factors/f32.cuh",
            "wgmma/k_factors/none.cuh",
            "wgmma/layout.cuh",
            "wgmma/load.cuh",
            "wgmma/loop/decoded.cuh",
            "wgmma/loop/fragments.cuh",
            "wgmma/pipeline.cuh",
            "wgmma/prepass.cuh",
            "wgmma/ptx.cuh",
            "wgmma/result/final.cuh",
            "wgmma/result/partial.cuh",
            "wgmma/result/store.cuh",
            "wgmma/rows/e4m3.cuh",
            "wgmma/rows/expanded.cuh",
            "wgmma/rows/half.cuh",
            "wgmma/schedule/bands.cuh",
            "wgmma/schedule/grouped.cuh",
            "wgmma/schedule/single.cuh",
            "wgmma/stage/decoded.cuh",
            "wgmma/stage/e4m3.cuh",
            "wgmma/stage/e4m3_block.cuh",
            "wgmma/stage/e4m3_halves.cuh",
            "wgmma/stage/e4m3_line.cuh",
            "wgmma/stage/e4m3_lines.cuh",
            "wgmma/stage/half.cuh",
            "wgmma/sums.cuh",
            "wgmma/tokens/decoded.cuh",
            "wgmma/tokens/e4m3.cuh",
            "wgmma/tokens/gathered.cuh",
            "wgmma/tokens/multicast.cuh",
            "wgmma/tokens/tma.cuh",
            "wgmma/unit/e4m3.cuh",
            "wgmma/unit/e4m3_along_k.cuh",
            "wgmma/unit/factors.cuh",
            "wgmma/unit/half.cuh",
            "wgmma/unit/weights.cuh",
            "wgmma/warps/specialised.cuh",
            "wgmma/warps/uniform.cuh",
            "wgmma/weights/e4m3.cuh",
            "wgmma/weights/expanded.cuh",
            "wgmma/weights/mxfp4/bf16.cuh",
            "wgmma/weights/mxfp4/f16.cuh",
            "wgmma/weights/mxfp4/powers.cuh",
            "wgmma/weights/nvfp4.cuh",
        ],
    }
}

fn shape(prepass: PrepassShape) -> serde_json::Value {
    json!({ "threads": prepass.threads, "codes": prepass.codes })
}

/// What its templates name beside what all do.
pub(in crate::path) fn names(layout: &WgmmaLayout, problem: &Problem, variant: &Variant) -> Names {
    let widths: Vec<u32> = layout.widths(variant).collect();
    let multicast = variant.cluster.multicast();
    let compute = problem.compute_format();
    let rounds = compute == Format::E4m3;
    // Elements along K of 128 bytes of tokens, and what NVFP4 ones become.
    let (line_k, token_compute) = if rounds { (128, Format::F16) } else { (64, compute) };
    let load_tokens = match () {
        () if layout.decodes_tokens => "decoded",
        () if problem.is_gathered() => "gathered",
        () if multicast > 1 => "multicast",
        () if rounds => "e4m3",
        () => "tma",
    };
    let k_factors = problem.has_k_factors();
    let unit = match () {
        () if k_factors => "e4m3_along_k",
        () if rounds => "e4m3",
        () => "half",
    };
    let factors = if rounds { "e4m3" } else { "half" };
    let rows = if problem.is_expanded() { "expanded" } else { factors };
    let weights = match problem.b_format() {
        _ if problem.is_expanded() => rows.to_owned(),
        _ if rounds => compute.word().to_owned(),
        Format::Mxfp4 => format!("mxfp4/{}", compute.word()),
        format => format.word().to_owned(),
    };
    let promotion = Promotion { parts: layout.sum_parts, is_scaled: k_factors };
    // Of the tokens that one warpgroup multiplies.
    let own = |tokens: u32| tokens / layout.token_parts;
    let own_widths: Vec<u32> = widths.iter().map(|width| own(*width)).collect();
    let is_decoded = layout.stage == Stage::Decoded;
    let sums = instruction::Sums {
        tokens: own(variant.tile.tokens),
        widths: &own_widths,
        promotion,
        apart: layout.stores_apart,
    };
    let shifted = layout.shifted.unwrap_or_default();
    vec![
        ("cluster_splits", variant.cluster.splits().into()),
        ("multicast", multicast.into()),
        ("persistent", variant.persistent.into()),
        ("has_prepass", variant.prepass.into()),
        ("prepass", shape(PREPASS)),
        ("early_prepass", shape(EARLY_PREPASS)),
        ("tiles_per_part", layout.tiles_per_part.into()),
        ("k_groups", layout.k_groups.into()),
        ("product_groups", layout.product_groups.into()),
        ("tile_groups", layout.tile_groups.into()),
        ("passes", layout.passes.into()),
        ("has_few", layout.has_few.into()),
        ("copied", problem.is_gathered().into()),
        ("has_k_factors", k_factors.into()),
        ("k_factors", if k_factors { "f32" } else { "none" }.into()),
        ("stores_apart", u32::from(layout.stores_apart).into()),
        ("found_offset", layout.found_offset.into()),
        ("token_warps", layout.token_warps.into()),
        ("token_parts", layout.token_parts.into()),
        ("decoders", variant.warps.decoders().into()),
        ("decoded_slots", layout.decoded_slots.into()),
        ("decoded_offset", layout.decoded_offset.into()),
        ("empty_arrivals", layout.empty_arrivals.into()),
        ("barriers_offset", layout.barriers_offset.into()),
        ("table_offset", layout.table_offset.into()),
        ("scratch_offset", layout.scratch_offset.into()),
        ("scratch_bytes", layout.scratch_bytes.into()),
        ("exchange_offset", layout.exchange_offset.into()),
        ("exchange_bytes", layout.exchange_bytes.into()),
        ("load_tokens", load_tokens.into()),
        ("decode_offset", layout.decode_offset.into()),
        ("factors_offset", layout.factors_offset.into()),
        ("k_factors_offset", layout.k_factors_offset.into()),
        ("line_k", line_k.into()),
        ("token_compute", token_compute.word().into()),
        ("factors", factors.into()),
        ("rows", rows.into()),
        ("unit", unit.into()),
        ("sum_parts", layout.sum_parts.into()),
        ("stage", layout.stage.file().into()),
        ("loop", if is_decoded { "decoded" } else { "fragments" }.into()),
        ("stuck", if layout.shifted.is_some() { "store" } else { "trap" }.into()),
        ("launch_registers", shifted.launch.into()),
        ("consumer_registers", shifted.consumer.into()),
        ("producer_registers", shifted.producer.into()),
        ("decoder_registers", shifted.decoder.into()),
        ("weights", weights.into()),
        ("width_list", widths.iter().map(u32::to_string).collect::<Vec<_>>().join(", ").into()),
        ("instruction", instruction::definitions(sums, compute, is_decoded).into()),
    ]
}
