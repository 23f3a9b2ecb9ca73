//! Kernels of the path wgmma.

use warpsmith::format::Format;

use super::Mutant;

/// Where a stage begins to be multiplied, and what releases it there.
pub(super) const STAGE: &str = "const u32 stage = loop.at.stage;";
pub(super) const RELEASED: &str =
    "const u32 stage = loop.at.stage; Ring::release(loop.at.empty()); for (int i = 0; i < 8; i++) __nanosleep(20000);";

/// None of them can hang: as many bytes and arrivals come to every barrier as before.
pub(super) fn mutants() -> Vec<Mutant> {
    let of = Mutant::of;
    let plain = of("wgmma.t64x64x128.s2.interleaved.ws2.shared", Format::F16);
    let few = of("wgmma.t48x64x128.s2.interleaved.ws2.shared", Format::F16);
    let k_groups = of("wgmma.t64x64x128.s4.interleaved.ws4.shared", Format::F16);
    let cluster = of("wgmma.t32x64x64.s4.interleaved.ws2.shared.dsmem2", Format::F16);
    let per_product = of("wgmma.t64x64x128.s4.per_product.ws2.shared", Format::F16);
    let persistent = of("wgmma.t64x64x64.s4.interleaved.ws2.tma.persistent", Format::F16);
    let staged = of("wgmma.t64x64x64.s8.interleaved.ws2.shared.persistent", Format::F16);
    let turns = of("wgmma.t64x64x64.s4.ping_pong.ws4.shared.persistent", Format::F16);
    // With room for a tile's stages, so that a warpgroup can be a tile ahead.
    let ahead = of("wgmma.t64x64x64.s14.ping_pong.ws4.shared.persistent", Format::F16);
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
            "(group) * params.bias_step[product]",
            "(GROUPS - 1 - group) * params.bias_step[product]",
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
        few(
            "few tokens in places of other K blocks",
            "place.stage + block * block_bytes",
            "place.stage + block * 1024",
        ),
        few(
            "all K blocks of few tokens the first",
            "tile.first_row, first + block, place",
            "tile.first_row, first, place",
        ),
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
            also: &[("if (!EAGER && held >= 0) Ring::release(held);", ""), ("if (!EAGER) Ring::release(held);", "")],
            ..plain("a stage released before it is read", STAGE, RELEASED)
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
        // One warpgroup is late to read what both have staged.
        Mutant {
            races: true,
            also: &[(
                "const int pieces = tile.columns()",
                "if (threadIdx.x < 128) for (int i = 0; i < 8; i++) __nanosleep(20000);\n  const int pieces = tile.columns()",
            )],
            ..ahead(
                "a tile staged over the one before",
                "if constexpr (PERSISTENT && !SCRATCH_IS_SHARED) group_sync(consumer);",
                "",
            )
        },
        // Who stores is late.
        Mutant {
            races: true,
            also: &[(
                "if (thread >= ROWS * OF_ROW) return;",
                "if (THREADS == 32) for (int i = 0; i < 8; i++) __nanosleep(20000);\n  if (thread >= ROWS * OF_ROW) return;",
            )],
            ..staged(
                "a tile staged over one that is being stored",
                "mbarrier_wait(ring.stored(consumer.tile_group), tile.turn & 1);",
                "",
            )
        },
        staged(
            "the last tile stored by nobody",
            "if (found_tile(consumer.tile_group, tile.turn + 1).rows > 0) {",
            "if (true) {",
        ),
        Mutant {
            races: true,
            also: &[(
                "const int pieces = tile.columns()",
                "if (threadIdx.x < 256) for (int i = 0; i < 8; i++) __nanosleep(20000);\n  const int pieces = tile.columns()",
            )],
            ..turns(
                "two groups stage their tiles in one place",
                "SCRATCH_OFFSET + consumer.tile_group * SCRATCH_BYTES",
                "SCRATCH_OFFSET",
            )
        },
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
