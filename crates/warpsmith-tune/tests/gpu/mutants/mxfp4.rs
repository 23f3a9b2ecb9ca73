//! Kernels of MXFP4 weights.

use warpsmith::format::Format;

use super::Mutant;

/// What may be wrong with MXFP4 weights. A row of K = 448 has an odd number of K blocks.
pub(super) fn as_given() -> Vec<Mutant> {
    let of = |variant, a| move |what, from, to| Mutant { b: Format::Mxfp4, ..Mutant::new(variant, a, what, from, to) };
    // Tiles of two K blocks, and of one.
    let mutant = of("mma.t32x64x128.s3.interleaved.uniform.direct", Format::Bf16);
    let single = of("mma.t32x64x64.s3.sequential.uniform.direct", Format::Bf16);
    let half = of("mma.t32x64x128.s3.interleaved.uniform.direct", Format::F16);
    vec![
        mutant("every scale is its neighbour's", "scales[lane_k() / 2]", "scales[lane_k() / 2 ^ 1]"),
        mutant("a scale for 16 elements", "scales[lane_k() / 2]", "scales[lane_k()]"),
        mutant("the first scale for all", "scales[lane_k() / 2]", "scales[0]"),
        mutant("the scales of the neighbour", "before % 2 * 2", "(before + 1) % 2 * 2"),
        mutant("odd rows taken for even ones", "(K / 64 % 2 == 0 ? 0 : position / 8)", "0"),
        mutant("the words of another row", "(row * (K / 64) + k_block) / 2", "((row ^ 1) * (K / 64) + k_block) / 2"),
        mutant("the scales of the first group", "scales + row * (K / 32)", "scales + first * (K / 32)"),
        mutant("the codes of the first group", "values + row * (K / 2)", "values + first * (K / 2)"),
        mutant("the exponent off by one", "of_f32(code << 23", "of_f32(code + 1 << 23"),
        mutant(
            "the halves of a fragment exchanged",
            "quarter.template decode<HALF>",
            "quarter.template decode<1 - HALF>",
        ),
        mutant(
            "the codes of the next quarter",
            "position, lane_k());\n    quarter",
            "position, lane_k() ^ 1);\n    quarter",
        ),
        mutant(
            "a NaN scale taken for a number",
            "of_f32(code << 23 | mantissa)",
            "of_f32((code == 0xFFu ? 127u : code) << 23)",
        ),
        mutant("scales read as e4m3", "e8m0_pair(scales", "e4m3_pair(scales"),
        single("what a tile begins with forgotten", "offset | k_tile % 2", "offset"),
        single("what a tile begins with the other way round", "offset | k_tile % 2", "offset | (k_tile + 1) % 2"),
        half("subnormal scales flushed", "return cvt_f16x2(", "return bits < 113u << 23 ? 0u : cvt_f16x2("),
        half("every scale is its neighbour's", "scales[lane_k() / 2]", "scales[lane_k() / 2 ^ 1]"),
        half("the exponent off by one", "of_f32(code << 23", "of_f32(code + 1 << 23"),
    ]
}

/// What may be wrong with prepared MXFP4 weights.
pub(super) fn prepared() -> Vec<Mutant> {
    let of = |variant, a| move |what, from, to| Mutant { b: Format::Mxfp4, ..Mutant::new(variant, a, what, from, to) };
    let mutant = of("wgmma.t64x64x128.s2.interleaved.ws2.shared", Format::Bf16);
    let apart = of("wgmma.t64x64x128.s4.per_product.ws2.shared", Format::Bf16);
    let half = of("wgmma.t64x64x128.s2.interleaved.ws2.shared", Format::F16);
    const HALVES: &str = "step / 2 == 0 ? scales.word : rotate_left<8>(scales.word)";
    vec![
        mutant("the scales of the other half", HALVES, "step / 2 == 1 ? scales.word : rotate_left<8>(scales.word)"),
        mutant("a scale for 16 elements", HALVES, "step % 2 == 0 ? scales.word : rotate_left<8>(scales.word)"),
        mutant("the first scale for all", HALVES, "scales.word"),
        mutant("the scales of another row pair", "scales + row_pair * 4", "scales + (row_pair ^ 1) * 4"),
        mutant("the exponent off by one", "+ 0x3F003F00", "+ 0x3F803F80"),
        mutant("large scales taken for small ones", "return scales.any_large;", "return false;"),
        mutant("large scales of the other row", "both<HALF>(exponents", "both<1 - HALF>(exponents"),
        mutant("half of a large scale", "mul(Decode::mul(weights, once), again)", "mul(weights, once)"),
        mutant("a NaN scale taken for a number", "pair == 0x7F807F80 ? pair : once", "once"),
        mutant("sums with a unit", "WEIGHT_UNIT = WeightFormat::unit();", "WEIGHT_UNIT = 16384.f;"),
        mutant(
            "the codes of another thread",
            "thread * 16), WeightFormat::load",
            "(thread ^ 1) * 16), WeightFormat::load",
        ),
        apart("the scales of the other product", "both<PRODUCT>(", "both<1 - PRODUCT>("),
        half(
            "subnormal scales flushed",
            "cvt_f16x2(__uint_as_float(pair << 16)",
            "cvt_f16x2(__uint_as_float(pair << 16 < 113u << 23 ? 0u : pair << 16)",
        ),
        half(
            "the rows of a pair exchanged",
            "__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000u)",
            "__uint_as_float(pair & 0xFFFF0000u), __uint_as_float(pair << 16)",
        ),
        half("codes without their unit", "0x74007400 - where_large(pair)", "0x3C003C00 - where_large(pair)"),
        half("large scales with codes' unit", "0x74007400 - where_large(pair)", "0x74007400"),
        half("large scales taken for small ones", "return scales.any_large;", "return false;"),
        half("large scales of the other row", "both<HALF>(exponents", "both<1 - HALF>(exponents"),
    ]
}
