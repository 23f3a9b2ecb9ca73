//! Kernels of e4m3 tokens, with which weights become e4m3.

use warpsmith::format::Format;

use super::Mutant;
use super::wgmma::{RELEASED, STAGE};

/// The same of e4m3 tokens that are gathered.
pub(super) fn gathered() -> Vec<Mutant> {
    let variant = "wgmma.t32x64x256.s2.interleaved.ws2.direct";
    let mutant = Mutant::of_moved(variant, Format::E4m3);
    let of_lines = Mutant::of_moved("wgmma.t32x64x128.s3.interleaved.ws2.direct", Format::E4m3);
    vec![
        mutant("factors of the product's rows", "is_there ? number : 0), is_there", "is_there ? row : 0), is_there"),
        mutant(
            "the last line of K left out",
            "i * LINE_BLOCKS + block < blocks_of(k_tile)",
            "(i + 1) * LINE_BLOCKS <= blocks_of(k_tile)",
        ),
        mutant("rows of 16-bit values", "static_cast<long long>(K) * (128 / LINE_K)", "static_cast<long long>(K) * 2"),
        mutant("the first line twice", "(later * LINES + i) * 128", "later * LINES * 128"),
        of_lines("the first stage again", "(later * LINES + i) * 128", "i * 128"),
        of_lines("addresses that stay", "share.advance(AT_ONCE)", "share.advance(0)"),
    ]
}

/// What may be wrong with e4m3 tokens and weights that become e4m3.
pub(super) fn mutants() -> Vec<Mutant> {
    let of = |variant| Mutant::of(variant, Format::E4m3);
    let mutant = of("wgmma.t64x64x128.s3.interleaved.ws2.shared");
    let deep = of("wgmma.t64x32x256.s2.interleaved.ws2.direct");
    let line = of("wgmma.t48x32x256.s3.interleaved.ws2.direct");
    let product = of("wgmma.t32x64x128.s3.per_product.ws2.direct");
    let half = of("wgmma.t112x32x128.s3.interleaved.ws1.direct.persistent");
    let halves = of("wgmma.t144x32x256.s2.interleaved.ws1.direct.persistent");
    vec![
        mutant(
            "factors of tokens left out",
            "__fmul_rn(__fmul_rn(sum, weights.of[held][product]), token == 0 ? tokens[n8].x : tokens[n8].y)",
            "__fmul_rn(sum, weights.of[held][product])",
        ),
        mutant("factors of the neighbour's token", "token == 0 ? tokens[n8].x", "token == 1 ? tokens[n8].x"),
        mutant("factors of weights left out", "__fmul_rn(sum, weights.of[held][product])", "sum"),
        mutant("factors of the other product", "factors[first_product + i]", "factors[PRODUCTS - 1 - i]"),
        mutant(
            "factors of the next column",
            "tile.first_column() + i % COLUMNS,",
            "tile.first_column() + i % COLUMNS + 1,",
        ),
        mutant(
            "α of another group",
            "tile.group * params.alpha_step[i], true",
            "(GROUPS - 1 - tile.group) * params.alpha_step[i], true",
        ),
        mutant("factors of the first group", "static_cast<long long>(tile.group) * PRODUCTS * N", "0 * PRODUCTS * N"),
        Mutant {
            also: &[("loop.template promote<WIDTH>();\n      if", "if")],
            ..mutant("no promotion", "multiply<WIDTH, true>(buffer", "multiply<WIDTH, false>(buffer")
        },
        mutant(
            "promotion of the last sums lost",
            "wgmma_wait_group<0>();\n  factors.template promote<WIDTH / SUM_PARTS, WIDTH - WIDTH / SUM_PARTS>();\n}",
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
        mutant("one table entry", "(120u << 3) + byte", "(120u << 3) + (byte == 67 ? 66 : byte)"),
        mutant("the mantissas' entries alone", "min(byte, byte & 7)", "(byte & 7)"),
        mutant("a mantissa of two bits", "byte & 7)", "byte & 3)"),
        mutant("scales of the neighbour's block", "BLOCK_CODES + thread * 2", "BLOCK_CODES + (thread ^ 1) * 2"),
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
        Mutant {
            races: true,
            ..mutant(
                "sums promoted that are not there",
                "wgmma_wait_group<0>();\n      loop.template",
                "wgmma_wait_group<1>();\n      loop.template",
            )
        },
        line("the second line's tokens are the first's", "stage + line * WIDTH * 128", "stage"),
        line("the second line's weights are the first's", "weights + 2 * BLOCK_BYTES", "weights"),
        line("a block of a line twice", "loop.load(block + i * BLOCK_BYTES)", "loop.load(block)"),
        line("a line whose sums do not begin anew", "wgmma<WIDTH, true>(a[0][0]", "wgmma<WIDTH, false>(a[0][0]"),
        line("a step of a line left out", "wgmma<WIDTH, false>(a[1][1], tokens + 3 * DESCRIPTOR_STEP);", ""),
        line(
            "the first lines promoted alone",
            "    loop.template promote<WIDTH>();\n    if (line",
            "    if (line == 0) loop.template promote<WIDTH>();\n    if (line",
        ),
        line(
            "a line of the same registers",
            "multiply_blocks<WIDTH>(BLOCKS - 2 * line, loop.a[line]",
            "multiply_blocks<WIDTH>(BLOCKS - 2 * line, loop.a[0]",
        ),
        Mutant {
            also: &[("if (!EAGER && held >= 0) Ring::release(held);", ""), ("if (!EAGER) Ring::release(held);", "")],
            ..mutant("a stage released before it is read", STAGE, RELEASED)
        },
        deep("the second line's tokens are the first's", "block / 2 * WIDTH * 128", "0 * WIDTH * 128"),
        deep("the second line loaded twice", "k_tile * TILE_K + line * LINE_K,", "k_tile * TILE_K,"),
        half(
            "the second half's tokens are the first's",
            "token_descriptor(line + HALF * 128)",
            "token_descriptor(line)",
        ),
        half("sums of the first half left out", "  loop.template promote<HALF, 0>();\n", ""),
        half(
            "sums of the second half to the first's totals",
            "promote<HALF, HALF>();\n    if (!K_FACTORS",
            "promote<HALF, 0>();\n    if (!K_FACTORS",
        ),
        half("the last half to the first's totals", "WIDTH - WIDTH / SUM_PARTS>", "0>"),
        half("a half whose sums do not begin anew", "wgmma<WIDTH, true>(a[0][0]", "wgmma<WIDTH, false>(a[0][0]"),
        Mutant {
            races: true,
            ..half(
                "a half promoted that is not there",
                "wgmma_wait_group<0>();\n  loop.template promote<HALF, 0>",
                "wgmma_wait_group<1>();\n  loop.template promote<HALF, 0>",
            )
        },
        Mutant {
            races: true,
            also: &[("    if (!K_FACTORS) loop.release_held();\n", "")],
            ..half(
                "a stage released before its second half is read",
                "    loop.wait_and_load();\n    wgmma_wait_group<0>();",
                "    loop.release_held();\n    loop.wait_and_load();\n    wgmma_wait_group<0>();",
            )
        },
        halves("halves of the first line twice", "stage + (LINES - 1) * WIDTH * 128", "stage"),
        halves("weights of the first line twice", "loop.weights + 2 * BLOCK_BYTES", "loop.weights"),
        product("the rows of the other product", "% 128 * 16 + PRODUCT * 8", "% 128 * 16 + (1 - PRODUCT) * 8"),
        product("scales of the other product", "scale_byte<PRODUCT>(bytes)", "scale_byte<1 - PRODUCT>(bytes)"),
    ]
}

/// What may be wrong where warpgroups decode for others.
pub(super) fn decoders() -> Vec<Mutant> {
    let of = |variant| Mutant::of(variant, Format::E4m3);
    let mutant = of("wgmma.t64x64x128.s3.interleaved.ws2d1.shared");
    let parts = of("wgmma.t64x32x256.s2.interleaved.ws2d2.shared");
    let halves = of("wgmma.t144x64x128.s2.interleaved.ws2d1.direct.persistent");
    let race = |what, from, to| Mutant { races: true, ..mutant(what, from, to) };
    vec![
        race("decoders: no fence", "    fence_proxy_async();\n    __syncwarp();\n", "    __syncwarp();\n"),
        race(
            "decoders: a line multiplied before it is decoded",
            "    mbarrier_wait(ring.decoded_full(line.slot), line.parity);\n",
            "",
        ),
        race(
            "decoders: a line decoded where one is still read",
            "    mbarrier_wait(ring.decoded_empty(own.slot), own.parity ^ 1);\n",
            "",
        ),
        race(
            "decoders: weights decoded that have not come",
            "      mbarrier_wait(ring.weights_full(at.slot), at.parity);\n",
            "",
        ),
        race(
            "decoders: tokens multiplied that have not come",
            "mbarrier_wait(ring.full(at.slot), at.parity);\n    if constexpr (COPIED)",
            ";\n    if constexpr (COPIED)",
        ),
        race("decoders: a line released before it is read", "blocks);\n    wgmma_wait_group<0>();", "blocks);"),
        race(
            "decoders: weights released before they are read",
            "#pragma unroll 1\n      for (; next < tasks; next += WARPS) decode(next / TILES, next % TILES);\n      next -= tasks;\n      __syncwarp();\n      if (lane_index() == 0) mbarrier_arrive(ring.weights_empty(at.slot));\n",
            "      __syncwarp();\n      if (lane_index() == 0) mbarrier_arrive(ring.weights_empty(at.slot));\n#pragma unroll 1\n      for (; next < tasks; next += WARPS) decode(next / TILES, next % TILES);\n      next -= tasks;\n",
        ),
        mutant("decoders: the rows of a step exchanged", "a[0], a[1], a[2], a[3])", "a[1], a[0], a[2], a[3])"),
        mutant("decoders: no swizzle", "(lane / 16 ^ lane % 8) * 16", "lane / 16 * 16"),
        mutant(
            "decoders: the first rows in place of others",
            "load(weights, ring.base, quarter + 1)",
            "load(weights, ring.base, 0)",
        ),
        mutant(
            "decoders: weights of the first m64 tile decoded",
            "(tile * K_BLOCKS + index * LINE_BLOCKS) * BLOCK_BYTES",
            "index * LINE_BLOCKS * BLOCK_BYTES",
        ),
        mutant(
            "decoders: weights of the first m64 tile multiplied",
            "weights(consumer.part * DECODED_TILE_BYTES)",
            "weights(0)",
        ),
        parts(
            "decoders: weights of a stage's first line",
            "(tile * K_BLOCKS + index * LINE_BLOCKS) * BLOCK_BYTES",
            "tile * K_BLOCKS * BLOCK_BYTES",
        ),
        parts("decoders: tokens of a stage's first line", "index * WIDTH * 128 + tokens", "tokens"),
        parts("decoders: tokens of the first part", "tokens(consumer.token_part * OWN * 128)", "tokens(0)"),
        parts("decoders: factors of the first part", "return consumer.token_part * HELD_N8 * 8;", "return 0;"),
        parts("decoders: a part stored over the first", "return consumer.token_part * 8 * HELD_N8;", "return 0;"),
        halves("decoders: tokens of the first half", "tokens + part * PART * 128", "tokens"),
        halves("decoders: sums of the first half left out", "        promote<PART, 0>();\n", ""),
        halves(
            "decoders: sums of the second half to the first's totals",
            "promote<PART, OWN - PART>();",
            "promote<PART, 0>();",
        ),
    ]
}

/// The same of tokens with factors for each 128 of K.
pub(super) fn along_k() -> Vec<Mutant> {
    let of = |variant, moved| {
        move |what, from, to| Mutant { k_factors: true, moved, ..Mutant::new(variant, Format::E4m3, what, from, to) }
    };
    let mutant = of("wgmma.t64x64x128.s3.interleaved.ws2.shared", false);
    let deep = of("wgmma.t32x64x256.s3.per_product.ws2.direct", false);
    let line = of("wgmma.t32x32x256.s3.interleaved.ws2.direct", false);
    let half = of("wgmma.t144x32x256.s2.interleaved.ws1.direct.persistent", false);
    let gathered = of("wgmma.t32x64x256.s2.interleaved.ws2.direct", true);
    vec![
        mutant(
            "factors left out",
            "cp_async_4(to + slot * STAGE_FACTOR_BYTES + (line * LINE_FACTORS + round * THREADS) * sizeof(float),\n                   at(round) + of_row, is_any);",
            "reinterpret_cast<float*>(shared_memory + (to - shared_base()))[slot * (STAGE_FACTOR_BYTES / 4) + line * LINE_FACTORS + round * THREADS] = 1.f;",
        ),
        mutant("factors of the first 128 of K", "at(round) + of_row", "at(round)"),
        mutant(
            "factors of the neighbour's 128 of K",
            "at(round) + of_row",
            "at(round) + min(of_row ^ 1, LINES_ALL - 1)",
        ),
        mutant(
            "factors of the row before",
            "(tile.first_row + thread) * LINES_ALL",
            "(max(tile.first_row + thread - 1, 0)) * LINES_ALL",
        ),
        mutant("rows of whole 128", "LINES_ALL = ceil_div(K, LINE_K)", "LINES_ALL = K / LINE_K"),
        mutant("the last factor of a row left out", "of_row < LINES_ALL", "of_row + 1 < LINES_ALL"),
        mutant("factors of the neighbour's token", "* 2 + thread % 2;", "* 2 + 1 - thread % 2;"),
        mutant("factors of eight tokens further", "thread % 16 / 8 * 2", "(1 - thread % 16 / 8) * 2"),
        mutant("factors of the tile's first tokens", "(round) * THREADS * LINES_ALL", "(0) * THREADS * LINES_ALL"),
        mutant("factors of the tile's first stage", "loop.follow(loop.ring, loop.at, block / 2);", ""),
        mutant("factors of weights left out", "__fmul_rn(sum, weights.of[held][product])", "sum"),
        deep(
            "factors of a stage's first line",
            "follow(loop.ring, loop.at, block / 2)",
            "follow(loop.ring, loop.at, 0)",
        ),
        line(
            "factors of a stage's first of two lines",
            "follow(loop.ring, loop.at, line)",
            "follow(loop.ring, loop.at, 0)",
        ),
        half(
            "factors of the first line for both halves of the second",
            "follow(loop.ring, loop.at, index)",
            "follow(loop.ring, loop.at, 0)",
        ),
        half(
            "factors of the line before for a first half",
            "  loop.follow(loop.ring, loop.at, index);\n  wgmma_wait_group<0>();\n  loop.template promote<HALF, 0>();",
            "  wgmma_wait_group<0>();\n  loop.template promote<HALF, 0>();\n  loop.follow(loop.ring, loop.at, index);",
        ),
        gathered(
            "factors of the product's rows",
            "? params.rows[tile.first_row + token] :",
            "? tile.first_row + token :",
        ),
        Mutant {
            races: true,
            ..mutant("a stage released before its factors are read", "EAGER = STAGES == STAGE_STEP", "EAGER = true")
        },
    ]
}

/// The same of expanded weights.
pub(super) fn expanded() -> Vec<Mutant> {
    let of =
        |variant| move |what, from, to| Mutant { expanded: true, ..Mutant::new(variant, Format::E4m3, what, from, to) };
    let mutant = of("wgmma.t64x64x128.s3.interleaved.ws2.shared");
    let product = of("wgmma.t32x64x128.s3.per_product.ws2.direct");
    vec![
        mutant(
            "the second step's weights are the first's",
            "ld_shared_16(step_at(block, step))",
            "ld_shared_16(step_at(block, 0))",
        ),
        mutant("weights of the neighbour's thread", "threadIdx.x % 128 * 16;", "(threadIdx.x % 128 ^ 1) * 16;"),
        mutant(
            "the rows of a step exchanged",
            "a[1] = values.y;\n    a[2] = values.z;",
            "a[2] = values.y;\n    a[1] = values.z;",
        ),
        mutant("the halves of a step exchanged", "a[0] = values.x;", "a[0] = values.z;"),
        mutant("factors of weights left out", "__fmul_rn(sum, weights.of[held][product])", "sum"),
        mutant("no promotion", "multiply<WIDTH, true>(buffer", "multiply<WIDTH, false>(buffer"),
        product("the first product's weights twice", "step) + PRODUCT * 4;", "step);"),
        product("the first tile's weights twice", "block + tile * K_BLOCKS * BLOCK_BYTES, step)", "block, step)"),
        product("the first half of a step twice", "ld_shared_4(from + 8)", "ld_shared_4(from)"),
    ]
}
