//! Kernels whose result is NVFP4.

use warpsmith::format::Format;

use super::Mutant;

/// What may be wrong with a result in NVFP4.
pub(super) fn mutants(variant: &'static str) -> Vec<Mutant> {
    let mutant = |what, from, to| Mutant {
        c: Format::Nvfp4,
        moved: true,
        ..Mutant::new(variant, Format::Nvfp4, what, from, to)
    };
    let quotient = "rounded<0x38800000u, 1>(fminf(fabsf(quotients.of(x)), 6.0f * 0x1p-14f));";
    let truncated = "__uint_as_float(__float_as_uint(fminf(fabsf(quotients.of(x)), 6.0f * 0x1p-14f)) & 0xFFC00000u);";
    let mut mutants = vec![
        mutant(
            "the largest of half of a block",
            "most = max_nan(most, fabsf",
            "if (i < COUNT / 2) most = max_nan(most, fabsf",
        ),
        mutant("the largest with its sign", "fabsf(values[i])", "values[i]"),
        mutant("the factor left out", "const BlockScale scale(most, factor);", "const BlockScale scale(most, 1.0f);"),
        mutant("the factor left out of codes", "divisor(__fmul_rn(scale, factor))", "divisor(scale)"),
        mutant(
            "the factor of another group",
            "c_factor[group * params.c_factor_step]",
            "c_factor[(GROUPS - 1 - group) * params.c_factor_step]",
        ),
        mutant("the scale of the neighbour block", "row, column / 16)] =", "row, column / 16 ^ 1)] ="),
        mutant(
            "scales in another layout",
            "row % 32 * 16 + row % 128 / 32 * 4 + block % 4",
            "row % 128 * 4 + block % 4",
        ),
        mutant("scales of the row of the product", "(N / 16, row, column", "(N / 16, row ^ 1, column"),
        mutant("scales not written", "if (which == 0) params.c_scales", "if (which < 0) params.c_scales"),
        mutant(
            "codes of another row",
            "static_cast<long long>(row) * (N / 2)",
            "static_cast<long long>(row ^ 1) * (N / 2)",
        ),
        mutant("codes exchanged", ".of[i % OF_WORD] = values[i];", ".of[i % OF_WORD] = values[i ^ 1];"),
        mutant("codes truncated", quotient, truncated),
        mutant(
            "scales truncated",
            "return rounded<0x3C800000u, 3>(kept);",
            "return __uint_as_float(__float_as_uint(kept) & 0xFFF00000u);",
        ),
        mutant(
            "scales rounded up",
            "return rounded<0x3C800000u, 3>(kept);",
            "return rounded<0x3C800000u, 3>(kept * 1.0625f);",
        ),
        mutant("scales below the smallest", "fminf(fmaxf(scale, 0x1p-9f), 448.0f)", "fminf(scale, 448.0f)"),
        mutant("the signs of codes lost", " | (__float_as_uint(x) & 0x80000000u)", ""),
        mutant("5 for 6", "__fdiv_rn(most, 6.0f)", "__fdiv_rn(most, 5.0f)"),
    ];
    mutants.extend(if variant.starts_with("tcgen05") {
        match variant.ends_with("token_rows") {
            true => vec![mutant(
                "the neighbour's columns",
                "tile.group, to, first(part), result",
                "tile.group, to, first(part) ^ 16, result",
            )],
            false => vec![
                mutant(
                    "the halves that lanes have exchanged",
                    "is_upper ? low : high, distance",
                    "is_upper ? high : low, distance",
                ),
                mutant("lanes in another order", "part * 16 + column % 16", "part * 16 + 15 - column % 16"),
                mutant("one exchange left out", "distance > 0; distance /= 2", "distance > 1; distance /= 2"),
            ],
        }
    } else {
        let lanes = match variant.contains("two_pass") {
            true => {
                mutant("lanes of other columns", "store_columns<1>(params, group", "store_columns<2>(params, group")
            }
            false => mutant(
                "lanes of other columns",
                "store_columns<4>(params, block.group",
                "store_columns<2>(params, block.group",
            ),
        };
        vec![mutant("the largest of a lane alone", "__shfl_xor_sync(lanes, most, i * LANE_STEP)", "most"), lanes]
    });
    mutants
}
