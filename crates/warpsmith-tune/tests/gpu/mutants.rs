//! Kernels with one thing wrong, made by changing the CUDA itself: the gate must refuse each.

use warpsmith::format::{Format, ScaleLayout};
use warpsmith::internal::build::Source;
use warpsmith::internal::format::e8m0;
use warpsmith::spec::{Activation, Arch, MatrixPath, Operation, Problem, Spec};
use warpsmith_tune::{HostMatrix, HostOperands, Spread, Trial};

use crate::bench::{Bench, changed, every_lane_arrives};
use crate::families::{block_scaled, rows};
use crate::tcgen05;

/// What most mutants compute.
const SILU: Operation = Operation::DualGemm(Activation::Silu);

#[derive(Clone, Copy)]
pub struct Mutant {
    pub what: &'static str,
    /// In every header or the entry file where it stands, this text …
    pub from: &'static str,
    /// … becomes this.
    pub to: &'static str,
    /// Further changes of the same kind.
    pub also: &'static [(&'static str, &'static str)],
    /// What is changed.
    pub variant: &'static str,
    /// The format of its tokens.
    pub a: Format,
    /// The format of its weights.
    pub b: Format,
    /// The format of its result.
    pub c: Format,
    /// What is done to its products.
    pub operation: Operation,
    /// Rows are taken and put by their numbers.
    pub moved: bool,
}

impl Mutant {
    /// Of a dual GEMM with SiLU on NVFP4 weights.
    pub const fn new(
        variant: &'static str,
        a: Format,
        what: &'static str,
        from: &'static str,
        to: &'static str,
    ) -> Self {
        Self { what, from, to, also: &[], variant, a, b: Format::Nvfp4, c: Format::F16, operation: SILU, moved: false }
    }

    /// What makes such mutants of a variant, for tokens in a format.
    pub fn of(variant: &'static str, a: Format) -> impl Fn(&'static str, &'static str, &'static str) -> Self + Copy {
        move |what, from, to| Self::new(variant, a, what, from, to)
    }

    /// Rows of all groups together: some more than a tile has.
    fn rows(&self) -> u32 {
        match () {
            () if ["t256x", "t192x"].iter().any(|tile| self.variant.contains(tile)) => 420,
            () if self.variant.contains("t160x") => 90,
            () if self.variant.contains("pair") => 150,
            // More than an atom of scales has.
            () if self.moved && self.a == Format::Nvfp4 => 200,
            () => 76,
        }
    }

    pub fn name(&self) -> String {
        let path = self.variant.split('.').next().unwrap_or_default();
        match self.operation {
            _ if self.c == Format::Nvfp4 => format!("coded: mutant of {path}, {}: {}", self.variant, self.what),
            _ if self.b == Format::Mxfp4 => format!("mxfp4: mutant of {path}, {} tokens: {}", self.a, self.what),
            SILU if self.a == Format::E4m3 && self.moved => format!("e4m3: mutant of {path}, gathered: {}", self.what),
            SILU if self.a == Format::E4m3 => format!("e4m3: mutant of {path}: {}", self.what),
            SILU if self.moved => format!("moved: mutant of {path}: {}", self.what),
            SILU => format!("mutant of {path}: {}", self.what),
            of => {
                let operation = if of.products() == 1 { "gemm" } else { "dual_gemm" };
                format!("activations: mutant of {path}, {operation}.{}: {}", of.activation(), self.what)
            }
        }
    }
}

pub fn all(arch: &Arch) -> Vec<Mutant> {
    let mut mutants = mma();
    mutants.extend(mxfp4());
    mutants.extend(moved("mma.t32x64x128.s3.interleaved.uniform.direct"));
    mutants.extend(activations("mma.t32x64x128.s3.interleaved.uniform.direct"));
    // The path wgmma, which only Hopper has.
    if arch.capability() == Arch::H200.capability() {
        mutants.extend(wgmma());
        mutants.extend(e4m3());
        mutants.extend(prepared_mxfp4());
        mutants.extend(gathered_e4m3());
        mutants.extend(moved("wgmma.t64x64x128.s3.interleaved.ws2.shared"));
        mutants.extend(moved("wgmma.t32x64x64.s8.interleaved.ws2.tma.persistent"));
        mutants.extend(activations("wgmma.t64x64x128.s2.interleaved.ws2.shared"));
    }
    mutants.extend(moved_codes("mma.t32x64x128.s3.interleaved.uniform.direct"));
    mutants.extend(coded("mma.t32x64x128.s3.interleaved.uniform.direct"));
    match block_scaled(arch) {
        Some(MatrixPath::Mxf4) => {
            mutants.extend(mxf4());
            mutants.extend(coded("mxf4.t40x256x128.s2.sequential.uniform.direct"));
            mutants.extend(coded("mxf4.t32x64x128.s3.two_pass.uniform.direct"));
            mutants.extend(moved_codes("mxf4.t32x64x128.s3.interleaved.uniform.direct"));
        }
        Some(MatrixPath::Tcgen05) => {
            mutants.extend(tcgen05::mutants());
            mutants.extend(coded("tcgen05.t48x128x256.s2.interleaved.ws1.direct"));
            mutants.extend(coded("tcgen05.t128x64x256.s2.interleaved.ws1.direct.token_rows"));
        }
        _ => {}
    }
    mutants
}

/// What may be wrong with an activation, of this variant.
fn activations(variant: &'static str) -> Vec<Mutant> {
    let of = |operation: Operation, what, from, to| {
        let variant = match operation {
            Operation::Gemm(_) if variant.starts_with("wgmma") => "wgmma.t64x64x128.s2.single.ws1.shared",
            Operation::Gemm(_) => "mma.t32x64x128.s3.single.uniform.direct",
            _ => variant,
        };
        Mutant { operation, ..Mutant::new(variant, Format::F16, what, from, to) }
    };
    let gated = |activation| move |what, from, to| of(Operation::DualGemm(activation), what, from, to);
    let single = |activation| move |what, from, to| of(Operation::Gemm(activation), what, from, to);
    let (clamp, oai, gelu) = (gated(Activation::SiluClamp(7)), gated(Activation::SwigluOai), gated(Activation::Gelu));
    let (relu2, plain_gelu, plain) = (single(Activation::Relu2), single(Activation::Gelu), single(Activation::None));
    let mut mutants: Vec<Mutant> = [clamp, oai]
        .iter()
        .flat_map(|of| {
            [
                of("the gate not clamped", "min_nan(gate, static_cast<float>(LIMIT))", "gate"),
                of("up not clamped", "return clamped_up(up)", "return up"),
                of("up clamped above alone", "-static_cast<float>(LIMIT));", "-128.f);"),
                of("another limit", "LIMIT = 7 };", "LIMIT = 8 };"),
            ]
        })
        .collect();
    mutants.extend([
        clamp("the gate clamped below, too", "-128.f", "-static_cast<float>(LIMIT)"),
        clamp("silu without a clamp", "activation/silu_clamp.cuh", "activation/silu.cuh"),
        clamp("swiglu_oai for it", "activation/silu_clamp.cuh", "activation/swiglu_oai.cuh"),
        oai("up without 1", "clamped_up(up) + 1.f", "clamped_up(up)"),
        oai("silu for its gate", "ALPHA_LOG2_E = 2.4554669595930157f", "ALPHA_LOG2_E = 1.4426950408889634f"),
        gelu("gelu_tanh for it", "activation/gelu.cuh", "activation/gelu_tanh.cuh"),
        gelu("a coefficient of its polynomial", "0.192184627f", "0.202184627f"),
        plain_gelu("gelu_tanh for it", "activation/gelu.cuh", "activation/gelu_tanh.cuh"),
        plain_gelu("none", "return activate(column", "return (column"),
        relu2("not squared", "return above * above", "return above"),
        relu2("squared without relu", "max_nan(x, 0.f)", "x"),
        relu2(
            "before α",
            "activate(column.of(0, alphas.value[0] * products[0]))",
            "alphas.value[0] * activate(column.of(0, products[0]))",
        ),
        plain("silu for nothing", "activation/none.cuh", "activation/silu.cuh"),
    ]);
    mutants
}

/// What may be wrong with rows that are taken and put by their numbers.
fn moved(variant: &'static str) -> Vec<Mutant> {
    let mutant = |what, from, to| Mutant { moved: true, ..Mutant::new(variant, Format::F16, what, from, to) };
    let mut mutants = vec![
        mutant("rows put where they are", "of(launch).slots[row]", "row"),
        mutant("no factors", "__fmul_rn(value, factors[row])", "value"),
        mutant("factors of the neighbour", "factors[row])", "factors[row ^ 1])"),
    ];
    mutants.extend(if variant.starts_with("mma") {
        [
            mutant("rows taken where they are", "numbers[row] : -1", "row : -1"),
            mutant(
                "the neighbour of each row",
                "static_cast<long long>(number) * K",
                "static_cast<long long>(number ^ 1) * K",
            ),
        ]
    } else {
        [
            mutant(
                "rows taken where they are",
                "params.rows[tile.first_row + first + round * STEP]",
                "tile.first_row + first + round * STEP",
            ),
            mutant("a number that A has not taken for the first", "zeros |= u32(!is_there) << round;", ""),
        ]
    });
    if variant.starts_with("wgmma") {
        mutants.push(mutant("the last row of a thread not copied", "round < rounds && i", "round + 1 < rounds && i"));
        mutants.push(mutant("the swizzle left out", "(chunk ^ (first % 8)) * 16", "chunk * 16"));
    }
    mutants
}

/// The same of NVFP4 tokens, which have scales beside their codes, where `cp.async` brings both.
fn moved_codes(variant: &'static str) -> Vec<Mutant> {
    let mutant = |what, from, to| Mutant { moved: true, ..Mutant::new(variant, Format::Nvfp4, what, from, to) };
    vec![
        mutant("codes and scales of rows where they are", "numbers[row] : -1", "row : -1"),
        mutant(
            "the codes of the neighbour of each row",
            "static_cast<long long>(number) * (K / 2)",
            "static_cast<long long>(number == 0) * (K / 2)",
        ),
        mutant(
            "the scales of the neighbour of each row",
            "scale_begin(number) + scale_offset(scale_row(number), k_block)",
            "scale_begin(number == 0) + scale_offset(scale_row(number == 0), k_block)",
        ),
        mutant("the scales of another atom", "scale_begin(number) + scale", "scale"),
        // Both: scales of zero would hide the codes.
        Mutant {
            also: &[("rows.scales + from, valid)", "rows.scales + from, is_inside)")],
            ..mutant(
                "a number that A has not taken for the first",
                "rows.values + from, valid)",
                "rows.values + from, is_inside)",
            )
        },
        mutant("codes of the next 64 of K", "* (K / 2) + in_row", "* (K / 2) + (in_row ^ 32)"),
    ]
}

/// What may be wrong with a result in NVFP4.
fn coded(variant: &'static str) -> Vec<Mutant> {
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

fn mma() -> Vec<Mutant> {
    let mutant = Mutant::of("mma.t32x64x128.s3.interleaved.uniform.direct", Format::Nvfp4);
    vec![
        mutant(
            "a tile of zeros",
            "float run[RUN];",
            "float run[RUN] = {}; if (block.first_column == 0) { Output::store(params.c, static_cast<long long>(row) * N + column, run); return; }",
        ),
        mutant(
            "one NaN",
            "run[i] = Destination::scaled(params, row, combine(products, alphas, columns.of[i]));",
            "run[i] = Destination::scaled(params, row, combine(products, alphas, columns.of[i])); if (row == 5 && column + i == 7) run[i] = __int_as_float(0x7FC00000);",
        ),
        mutant("an element not written", "if (row < block.rows)", "if (row < block.rows && row != 3)"),
        mutant("rows swapped", "n8 * 8 + 2 * lane_k() + token;", "n8 * 8 + 2 * lane_k() + 1 - token;"),
        mutant("columns swapped", "[n8][i / 2][2 * (i % 2) + token]", "[n8][i / 2][2 * (1 - i % 2) + token]"),
        mutant(
            "every scale is its neighbour's",
            "CODES + k_block * ROWS * 4 + position * 4 + quarter",
            "CODES + k_block * ROWS * 4 + position * 4 + (quarter ^ 1)",
        ),
        mutant(
            "subnormal scales flushed",
            "magnitude == 0x7Fu ? 0x7FFFu",
            "magnitude < 8u ? 0u : magnitude == 0x7Fu ? 0x7FFFu",
        ),
        mutant("the sign of codes lost", "(sign & 0x80808080u)", "(sign & 0u)"),
        mutant("a code decoded as its neighbour", "0x7362u", "0x6362u"),
        mutant(
            "the last tile along K lost",
            "constexpr int K_TILES = ceil_div(K, TILE_K);",
            "constexpr int K_TILES = ceil_div(K, TILE_K) - 1;",
        ),
        mutant("gate and up exchanged", "fusion.sums[product]", "fusion.sums[PRODUCTS - 1 - product]"),
        mutant("no activation", "activate(column.of(0,", "(column.of(0,"),
        mutant(
            "α after the activation",
            "activate(column.of(0, alphas.value[0] * products[0]))",
            "alphas.value[0] * activate(column.of(0, products[0]))",
        ),
        mutant("α of another group", "group * params.alpha_step[i]", "(GROUPS - 1 - group) * params.alpha_step[i]"),
        mutant("no factors of rows of B", "return __fmul_rn(value, of[product]);", "return value;"),
        mutant("factors of another group", "(group) * params.row_scale_step[i]", "(0) * params.row_scale_step[i]"),
        mutant("the bias of the next column", "group, min(first(i), N - 1));", "group, min(first(i) + 1, N - 1));"),
        mutant(
            "the bias after the activation",
            "activate(column.of(0, alphas.value[0] * products[0]))",
            "column.bias.added(0, activate(column.row_scale.scaled(0, alphas.value[0] * products[0])))",
        ),
        mutant("a row too many written", "if (row < block.rows)", "if (row <= block.rows)"),
        mutant(
            "groups begin a row late",
            "__shfl_sync(~0u, begin, owner) + tile * TOKENS",
            "__shfl_sync(~0u, begin, owner) + 1 + tile * TOKENS",
        ),
        mutant("padding scales read", "row % 128) / 32 * 4", "row % 128) / 32 * 4 + (row % 128 == 5 ? 8 : 0)"),
    ]
}

/// What may be wrong with MXFP4 weights. A row of K = 448 has an odd number of K blocks.
fn mxfp4() -> Vec<Mutant> {
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
fn prepared_mxfp4() -> Vec<Mutant> {
    let of = |variant, a| move |what, from, to| Mutant { b: Format::Mxfp4, ..Mutant::new(variant, a, what, from, to) };
    let mutant = of("wgmma.t64x64x128.s2.interleaved.ws2.shared", Format::Bf16);
    let apart = of("wgmma.t64x64x128.s4.per_product.ws2.shared", Format::Bf16);
    let half = of("wgmma.t64x64x128.s2.interleaved.ws2.shared", Format::F16);
    const HALVES: &str = "step / 2 == 0 ? scales : rotate_left<8>(scales)";
    vec![
        mutant("the scales of the other half", HALVES, "step / 2 == 1 ? scales : rotate_left<8>(scales)"),
        mutant("a scale for 16 elements", HALVES, "step % 2 == 0 ? scales : rotate_left<8>(scales)"),
        mutant("the first scale for all", HALVES, "scales"),
        mutant("the scales of another row pair", "scales + row_pair * 4", "scales + (row_pair ^ 1) * 4"),
        mutant("the exponent off by one", "Decode::powers((step", "Decode::powers(0x00800080u + (step"),
        mutant(
            "codes without their unit",
            "Decode::mul(Decode::codes<PAIR>(word), Decode::units())",
            "Decode::codes<PAIR>(word)",
        ),
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
        half(
            "codes without their unit",
            "Decode::mul(Decode::codes<PAIR>(word), Decode::units())",
            "Decode::codes<PAIR>(word)",
        ),
    ]
}

fn mxf4() -> Vec<Mutant> {
    let of = |variant| Mutant::of(variant, Format::Nvfp4);
    // Warps share K; each has one m16 tile, and tokens for one register of scales.
    let mutant = of("mxf4.t32x64x128.s3.interleaved.uniform.direct");
    // Each warp has two m16 tiles, and tokens for two registers, the second of them not full.
    let wide = of("mxf4.t40x256x128.s2.sequential.uniform.direct");
    vec![
        mutant("the scales of other rows", "first + 8 * eighth + lane_row()", "first + 8 * (eighth ^ 1) + lane_row()"),
        mutant(
            "the scales of another K block",
            "offset + CODES + k_block * ROWS",
            "offset + CODES + (k_block ^ 1) * ROWS",
        ),
        mutant("every tile of tokens has the first one's scales", "nvf4<0, TILE>(sum[0]", "nvf4<0, 0>(sum[0]"),
        mutant("weights with the scales of lanes that have none", "nvf4<0, TILE>(sum[0]", "nvf4<1, TILE>(sum[0]"),
        mutant(
            "the scales of both operands exchanged",
            "b0, b1, rows.scales, tokens.scales",
            "b0, b1, tokens.scales, rows.scales",
        ),
        mutant(
            "rows and halves of k of weights exchanged",
            "first[0], first[1], first[2]",
            "first[0], first[2], first[1]",
        ),
        mutant("the halves of k of tokens exchanged", "first[3], b0, b1", "first[3], b1, b0"),
        mutant("the first half of k of tokens twice", "[2 + TILE % 2]", "[TILE % 2]"),
        mutant("the first half of k of both twice", "2 * k_block + lane_index() / 16", "2 * k_block"),
        mutant(
            "the swizzle left out",
            "Swizzled::chunk(position, 2 * k_block + lane_index() / 16)",
            "position * (TILE_K / 2) + (2 * k_block + lane_index() / 16) * 16",
        ),
        mutant("eight rows for sixteen", "(rows < 16 ? 8 : 16)", "8"),
        mutant("gate for up", "held[product].load(weights[product]", "held[product].load(weights[0]"),
        mutant("the last tile of tokens lost", "if (n8 + TILE >= WARP_N8)", "if (n8 + TILE >= WARP_N8 - 1)"),
        mutant("the sums of another warp dropped", "own[i] += shared[", "own[i] += 0.f * shared["),
        mutant("every warp begins with the first K block", "k_block * WARPS_K + warp_k()", "k_block * WARPS_K"),
        mutant("a stage not waited for", "cp_async_wait_group<STAGES - 2>();", "cp_async_wait_group<STAGES - 1>();"),
        mutant(
            "no barrier before a stage is read",
            "cp_async_wait_group<STAGES - 2>();\n      __syncthreads();",
            "cp_async_wait_group<STAGES - 2>();",
        ),
        // Copies get time to arrive in the stage that is still to be read.
        Mutant {
            also: &[(
                "constexpr int ROUNDS = ceil_div(WARP_N8, 4);",
                "constexpr int ROUNDS = ceil_div(WARP_N8, 4); __nanosleep(20000);",
            )],
            ..mutant(
                "a stage overwritten before it is read",
                "for (int stage = 0; stage < STAGES - 1; stage++)",
                "for (int stage = 0; stage < STAGES; stage++)",
            )
        },
        mutant(
            "the last tile along K lost",
            "constexpr int K_TILES = ceil_div(K, TILE_K);",
            "constexpr int K_TILES = ceil_div(K, TILE_K) - 1;",
        ),
        wide(
            "the last K block of a stage left out",
            "k_block < K_BLOCKS / WARPS_K;",
            "k_block < K_BLOCKS / WARPS_K - 1;",
        ),
        wide("the second tile of weights with the first one's scales", "nvf4<1, TILE>(sum[1]", "nvf4<0, TILE>(sum[1]"),
        wide("the second tile of weights the first", "rows.codes[1];", "rows.codes[0];"),
        wide("the first tokens again", "k_block, first + 32, rest - 32)", "k_block, first, rest - 32)"),
        wide("fragments overwritten before they are multiplied", "round[(i + 1) % 2].load", "round[i % 2].load"),
    ]
}

/// None of them can hang: as many bytes and arrivals come to every barrier as before.
fn wgmma() -> Vec<Mutant> {
    let of = Mutant::of;
    let plain = of("wgmma.t64x64x128.s2.interleaved.ws2.shared", Format::F16);
    let k_groups = of("wgmma.t64x64x128.s4.interleaved.ws4.shared", Format::F16);
    let cluster = of("wgmma.t32x64x64.s4.interleaved.ws2.shared.dsmem2", Format::F16);
    let per_product = of("wgmma.t64x64x128.s4.per_product.ws2.shared", Format::F16);
    let persistent = of("wgmma.t64x64x64.s4.interleaved.ws2.tma.persistent", Format::F16);
    let bf16 = of("wgmma.t64x64x128.s2.interleaved.ws2.direct", Format::Bf16);
    let decoded = of("wgmma.t64x64x128.s2.interleaved.ws2.shared", Format::Nvfp4);
    let prepass = of("wgmma.t64x64x128.s2.interleaved.ws2.shared.prepass", Format::Nvfp4);
    vec![
        plain(
            "all but the tail along K lost",
            "multiply_stage<LAST_BLOCKS, WIDTH>(*this);",
            "clear_sums<WIDTH>(); multiply_stage<LAST_BLOCKS, WIDTH>(*this);",
        ),
        plain("sums without their unit", "WEIGHT_UNIT = WeightFormat::unit();", "WEIGHT_UNIT = 1.f;"),
        plain(
            "the bias of another group",
            "(group) * params.bias_step[i]",
            "(GROUPS - 1 - group) * params.bias_step[i]",
        ),
        plain(
            "columns taken for those before",
            "first_column() + Fusion::column(consumer, held) + lane_index() / 4",
            "first_column() + Fusion::column(consumer, held)",
        ),
        plain("gate and up exchanged", "sums[0][i + 2 * product]", "sums[0][i + 2 * (1 - product)]"),
        plain(
            "every odd step has the scales of the even one",
            "rotate_left<8>(word)) & 0x7F807F80",
            "word) & 0x7F807F80",
        ),
        plain("the tokens of another K block", "k_tile * K_BLOCKS, place.full", "k_tile * K_BLOCKS + 1, place.full"),
        plain("groups begin a row late", "found.first_row + offset;", "found.first_row + offset + 1;"),
        plain(
            "the last row of a tile forgotten",
            "found.rows - offset, found.height);",
            "found.rows - offset, found.height) - 1;",
        ),
        plain("a row too many stored", "if (token < tile.rows && piece", "if (token <= tile.rows && piece"),
        plain("a tile multiplied narrower than it is", "if (tile.rows > WIDTH) {", "if (tile.rows > WIDTH + 8) {"),
        // Whoever loads gets time to write into the stage that is still to be read.
        Mutant {
            also: &[("if (!EAGER && held >= 0) ring.release(held);", ""), ("if (!EAGER) ring.release(held);", "")],
            ..plain("a stage released before it is read", MORE, RELEASED)
        },
        k_groups("the sums of a K group dropped", "other < K_GROUPS - 1; other++", "other < K_GROUPS - 2; other++"),
        cluster("the share of the other block dropped", "add(v, sent(0));", ""),
        cluster("both blocks finish the same tokens", "tile.split * HELD_N8 * 8", "0 * tile.split * HELD_N8 * 8"),
        per_product(
            "the product of the other warpgroup lost",
            "sums[1][i] = scratch[i * LANES + lane];",
            "sums[1][i] = 0.f;",
        ),
        persistent("every tile in the first columns", "ordinal % COLUMN_TILES;", "ordinal % COLUMN_TILES * 0;"),
        bf16("the exponent of scales in bf16", ", 0x70007000u)", ", 0x60006000u)"),
        decoded("decoded tokens without the swizzle", "(index ^ (row % 8)) * 16", "index * 16"),
        decoded(
            "the scale of the step before",
            "scales >> (8 * (quarter + i / 2))",
            "scales >> (8 * (quarter + (i / 2 ^ 1)))",
        ),
        prepass("the scales of another block", "+ column / 16 % 4;", "+ (column / 16 ^ 1) % 4;"),
        prepass(
            "half of the codes decoded",
            "(codes, e4m3_pair(scale), values)",
            "(codes & 0xFF, e4m3_pair(scale), values)",
        ),
        prepass(
            "codes left out in dependent launches",
            "wait_for_dependencies();\n  if (!share.is_any()) return;",
            "wait_for_dependencies();\n  if (!share.is_any() || threadIdx.x == 3) return;",
        ),
    ]
}

/// The same of e4m3 tokens that are gathered.
fn gathered_e4m3() -> Vec<Mutant> {
    let variant = "wgmma.t32x64x256.s2.interleaved.ws2.direct";
    let mutant = |what, from, to| Mutant { moved: true, ..Mutant::new(variant, Format::E4m3, what, from, to) };
    vec![
        mutant("factors of the product's rows", "? factors[number] : 1.f", "? factors[row] : 1.f"),
        mutant(
            "the last line of K left out",
            "i * LINE_BLOCKS + block < blocks_of(k_tile)",
            "(i + 1) * LINE_BLOCKS <= blocks_of(k_tile)",
        ),
        mutant("rows of 16-bit values", "static_cast<long long>(K) * (128 / LINE_K)", "static_cast<long long>(K) * 2"),
        mutant("the first line twice", "from[round] + i * 128", "from[round]"),
    ]
}

/// Where a stage begins to be multiplied, and what releases it there.
const MORE: &str = "const bool more = loop.index + K_GROUPS < loop.tile.k_tiles;";
const RELEASED: &str = "const bool more = loop.index + K_GROUPS < loop.tile.k_tiles; loop.ring.release(loop.at.slot); for (int i = 0; i < 8; i++) __nanosleep(20000);";

/// What may be wrong with e4m3 tokens and weights that become e4m3.
fn e4m3() -> Vec<Mutant> {
    let of = |variant| Mutant::of(variant, Format::E4m3);
    let mutant = of("wgmma.t64x64x128.s3.interleaved.ws2.shared");
    let deep = of("wgmma.t64x32x256.s2.interleaved.ws2.direct");
    let product = of("wgmma.t32x64x128.s3.per_product.ws2.direct");
    vec![
        mutant(
            "factors of tokens left out",
            "__fmul_rn(__fmul_rn(sum, weights[held][product]), tokens[n8][token])",
            "__fmul_rn(sum, weights[held][product])",
        ),
        mutant(
            "factors of the neighbour's token",
            "lane_index() % 4 * 2 + token, tile.rows - 1));",
            "lane_index() % 4 * 2 + 1 - token, tile.rows - 1));",
        ),
        mutant("factors of weights left out", "__fmul_rn(sum, weights[held][product])", "sum"),
        mutant(
            "factors of the other product",
            "of_group[(first_product + i) * N + column]",
            "of_group[(PRODUCTS - 1 - i) * N + column]",
        ),
        mutant("factors of the first group", "static_cast<long long>(tile.group) * PRODUCTS * N", "0 * PRODUCTS * N"),
        Mutant {
            also: &[("promote_sums<WIDTH>();\n      if", "if")],
            ..mutant("no promotion", "multiply<WIDTH, true>(buffer", "multiply<WIDTH, false>(buffer")
        },
        mutant(
            "promotion of the last sums lost",
            "wgmma_wait_group<0>();\n  promote_sums<WIDTH>();\n}",
            "wgmma_wait_group<0>();\n}",
        ),
        mutant("sums that do not begin anew", "multiply<WIDTH, true>(buffer", "multiply<WIDTH, false>(buffer"),
        mutant("every block begins anew", "multiply<WIDTH, false>(buffer", "multiply<WIDTH, true>(buffer"),
        mutant("a magnitude rounded down", "1.5f * scale) << 16", "1.4375f * scale) << 16"),
        mutant(
            "a magnitude rounded up",
            "cvt_e4m3x2(2.f * scale, 3.f * scale)",
            "cvt_e4m3x2(2.f * scale, 3.125f * scale)",
        ),
        mutant("one table entry", "if (index >= MANTISSAS) return;", "if (index >= MANTISSAS || index == 3) return;"),
        mutant("the mantissas' entries alone", "min(byte, byte & 7)", "(byte & 7)"),
        mutant("a mantissa of two bits", "byte & 7)", "byte & 3)"),
        mutant(
            "scales of the neighbour's block",
            "BLOCK_CODES + threadIdx.x % 128 * 2",
            "BLOCK_CODES + (threadIdx.x % 128 ^ 1) * 2",
        ),
        mutant("scales of the rows exchanged", "return ROW == 0 ?", "return ROW == 1 ?"),
        mutant("signs left out", "prmt(of.low, of.high, which) | (word & 0x80808080u)", "prmt(of.low, of.high, which)"),
        mutant("signs of the first codes for the others", "(word << 4 & 0x80808080u)", "(word & 0x80808080u)"),
        mutant("the halves of a step exchanged", "low.decode(a[0], a[2], step)", "low.decode(a[2], a[0], step)"),
        mutant("the rows of a step exchanged", "high.decode(a[1], a[3], step)", "high.decode(a[3], a[1], step)"),
        mutant("the second block's tokens are the first's", "block % 2 * 2 * DESCRIPTOR_STEP", "0 * DESCRIPTOR_STEP"),
        mutant(
            "the second step's tokens are the first's",
            "wgmma<WIDTH, false>(a[1], tokens + DESCRIPTOR_STEP)",
            "wgmma<WIDTH, false>(a[1], tokens)",
        ),
        mutant(
            "sums promoted that are not there",
            "wgmma_wait_group<0>();\n      promote",
            "wgmma_wait_group<1>();\n      promote",
        ),
        Mutant {
            also: &[("if (!EAGER && held >= 0) ring.release(held);", ""), ("if (!EAGER) ring.release(held);", "")],
            ..mutant("a stage released before it is read", MORE, RELEASED)
        },
        deep("the second line's tokens are the first's", "block / 2 * WIDTH * 128", "0 * WIDTH * 128"),
        deep("the second line loaded twice", "k_tile * TILE_K + line * LINE_K,", "k_tile * TILE_K,"),
        product("the rows of the other product", "% 128 * 16 + PRODUCT * 8", "% 128 * 16 + (1 - PRODUCT) * 8"),
        product("scales of the other product", "scale_byte<PRODUCT>(bytes)", "scale_byte<1 - PRODUCT>(bytes)"),
    ]
}

fn mutated(source: &Source, mutant: &Mutant) -> Result<Source, String> {
    let changes: Vec<_> = mutant.also.iter().copied().chain([(mutant.from, mutant.to)]).collect();
    changed(source, &changes).map_err(|from| format!("`{from}` stands nowhere: the mutant is out of date"))
}

/// A problem in which everything counts: groups, α, factors and a bias of their own, subnormal scales in both operands, an M that fits no
/// tile, a K that ends inside one.
fn spec(mutant: &Mutant, arch: &Arch) -> Result<Spec, String> {
    let (problem, k) = match mutant.operation {
        Operation::Gemm(activation) => (Problem::gemm().activation(activation), 128),
        // So deep that stages are filled again.
        SILU if mutant.variant.starts_with("tcgen05") => (Problem::dual_gemm(Activation::Silu), 1088),
        SILU => (Problem::dual_gemm(Activation::Silu), 448),
        // A shallow K: sums are known so well that activations which are alike differ by more.
        Operation::DualGemm(activation) => (Problem::dual_gemm(activation), 128),
        other => return Err(format!("{other:?} has no mutants")),
    };
    let layout = if mutant.b == Format::Mxfp4 { ScaleLayout::Linear } else { ScaleLayout::Swizzled128x4 };
    let n = if mutant.c == Format::Nvfp4 { 192 } else { 144 };
    let problem = problem.n(n).k(k).a(mutant.a).b(mutant.b).c(mutant.c).grouped(3).scales(layout);
    let problem = problem.row_scale().bias(Format::Bf16);
    // So deep that sums which nobody promotes lose bits, and a result that shows them.
    let problem = if mutant.a == Format::E4m3 { problem.k(2112).c(Format::F32) } else { problem };
    let problem = if mutant.moved { problem.gathered().slots() } else { problem };
    let problem = if mutant.variant.starts_with("wgmma") { problem.prepared() } else { problem };
    let variant = mutant.variant.parse().unwrap();
    Spec::new(&problem, &variant, arch).map_err(|error| error.to_string())
}

/// Every mutant, and every change for racecheck, finds its place in today's text. Needs no GPU.
pub fn are_up_to_date() -> Result<(), String> {
    let known =
        [Arch::H200, Arch::RTX5090, Arch::B200].map(|arch| all(&arch).into_iter().map(move |mutant| (mutant, arch)));
    for (mutant, arch) in known.into_iter().flatten() {
        let spec = spec(&mutant, &arch)?;
        let source = warpsmith::internal::build::render(&spec).map_err(|error| error.to_string())?;
        mutated(&source, &mutant).map_err(|error| format!("{}: {error}", mutant.name()))?;
        if spec.problem().is_prepared() {
            every_lane_arrives(&source)?;
        }
    }
    Ok(())
}

pub fn is_killed(bench: &Bench, mutant: &Mutant) -> Result<(), String> {
    let spec = spec(mutant, bench.arch())?;
    let problem = *spec.problem();
    let source = warpsmith::internal::build::render(&spec).map_err(|error| error.to_string())?;
    let kernel = bench.kernel_of(&spec, &mutated(&source, mutant)?)?;

    let _turn = bench.alone();
    let spreads =
        if mutant.a == Format::E4m3 { [Spread::Exact, Spread::Every] } else { [Spread::Every, Spread::Subnormal] };
    for spread in spreads {
        let mut host = HostOperands::random(&problem, &rows(&problem, mutant.rows(), 3), spread, 11);
        if let Some(HostMatrix::Mxfp4 { scales, .. }) = host.b.last_mut() {
            scales[40] = e8m0::NAN;
        }
        let reference = host.reference().map_err(|error| error.to_string())?;
        let trial = Trial::new(&bench.stream, &host, &reference).map_err(|error| error.to_string())?;
        // The unchanged kernel passes on the same operands.
        let right = trial.check(&bench.kernel(&spec)?).map_err(|error| error.to_string())?;
        if !right.passed() {
            return Err(format!("the unchanged kernel is refused: {right}"));
        }
        match trial.check(&kernel) {
            Ok(checked) if checked.passed() => {}
            // A launch that fails is no way to pass: an emulated GPU sees what is read outside of an allocation.
            Err(error) if !error.is_driver() => return Err(error.to_string()),
            _ => return Ok(()),
        }
    }
    Err("the gate lets it pass".to_owned())
}
