//! Kernels of the path mxf4.

use warpsmith::format::Format;

use super::Mutant;

pub(super) fn mutants() -> Vec<Mutant> {
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
