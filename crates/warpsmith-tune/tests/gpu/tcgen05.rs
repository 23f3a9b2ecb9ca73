//! Kernels of the path tcgen05 with one thing wrong. Many of them would hang a device, or are right on most: only an emulated
//! one is given them, where what is not allowed, not there yet or not told is found.

use warpsmith::format::Format;

use crate::mutants::Mutant;

/// Weights are the rows; scales of tokens are copied.
const COPIED: &str = "tcgen05.t48x128x256.s2.interleaved.ws1.direct";
/// Tokens are the rows; every other tile begins in the middle of a block of scales.
const TOKEN_ROWS: &str = "tcgen05.t128x64x256.s2.interleaved.ws1.direct.token_rows";
/// Tensor memory has room for the scales of two of three stages, of two blocks of 128 tokens each.
const SLOTS: &str = "tcgen05.t192x128x256.s3.interleaved.ws1.direct";
const PERSISTENT: &str = "tcgen05.t32x128x256.s2.interleaved.ws1.direct.persistent";
const PAIR: &str = "tcgen05.t64x256x256.s2.interleaved.ws1.direct.pair";
/// More tokens than most groups have rows.
const TALL_PAIR: &str = "tcgen05.t160x256x256.s2.interleaved.ws1.direct.pair";
const PAIR_OF_TOKENS: &str = "tcgen05.t256x64x256.s2.interleaved.ws1.direct.pair.token_rows";
/// Of no groups, so that scales of tokens come by maps, too: those of columns, and those of rows.
const PAIR_ALONE: &str = "tcgen05.t128x256x256.s2.interleaved.ws1.direct.pair";
const PAIR_OF_TOKENS_ALONE: &str = "tcgen05.t256x128x256.s2.interleaved.ws1.direct.pair.token_rows";
const PERSISTENT_PAIR: &str = "tcgen05.t32x256x256.s2.interleaved.ws1.direct.pair.persistent";

/// What may be wrong with tokens that warps bring by the numbers of their rows.
fn gathered() -> Vec<Mutant> {
    let of = |variant| Mutant::of_moved(variant, Format::Nvfp4);
    let columns = of(COPIED);
    let rows = of(TOKEN_ROWS);
    let pair = of(PAIR);
    let pair_of_tokens = of(PAIR_OF_TOKENS);
    let scales = "scale_begin(number) + scale_offset(scale_row(number), k_block)";
    let neighbours = "scale_begin(number == 0) + scale_offset(scale_row(number == 0), k_block)";
    vec![
        columns("rows taken where they are", "params.rows[row] : -1", "row : -1"),
        rows("the codes of the neighbour of each row", "number * (K / 2ll)", "(number == 0) * (K / 2ll)"),
        columns("the scales of the neighbour of each row", scales, neighbours),
        rows("the scales of another atom", "scale_begin(number) + scale", "scale"),
        columns(
            "a number that A has not taken for the first",
            "u32(params.a_rows) ? number : -1",
            "u32(params.a_rows) ? number : 0",
        ),
        rows("codes without the swizzle", "(chunk ^ row % 8) * 16", "chunk * 16"),
        rows("codes of the next 64 of K", "(K / 2ll) + k / 2", "(K / 2ll) + (k ^ 64) / 2"),
        rows("the scales of the next 64 of K", "scale_row(number), k_block)", "scale_row(number), k_block ^ 1)"),
        columns(
            "the last rows not copied",
            "if (i * share.codes.STEP >= height)",
            "if ((i + 1) * share.codes.STEP >= height)",
        ),
        columns("a loader waited for that there is not", "GATHERED ? 1 : 2", "2"),
        rows("tokens not waited for", "BLOCKS * (LOADERS + COPY_WARPS)", "BLOCKS * LOADERS"),
        rows("tokens not fenced for the tensor cores", "fence_proxy_async();\n  __syncwarp();", "__syncwarp();"),
        pair("both blocks have the first one's tokens", "tile.token_row(rank))", "tile.token_row(0))"),
        pair("tokens not released to the other block", "if constexpr (PAIR) fence_release_shared();", ""),
        pair_of_tokens(
            "both blocks have the first one's scales",
            "TokenScaleRows::first(tile, rank))",
            "TokenScaleRows::first(tile, 0))",
        ),
    ]
}

pub fn mutants() -> Vec<Mutant> {
    let mut mutants = in_order();
    mutants.extend(mapped_scales());
    mutants.extend(gathered());
    mutants
}

/// What may be wrong with scales that the blocks of a pair bring each other.
fn mapped_scales() -> Vec<Mutant> {
    let of = |variant| Mutant::of(variant, Format::Nvfp4);
    let columns = of(PAIR_OF_TOKENS);
    let rows = of(PAIR);
    let columns_alone = of(PAIR_ALONE);
    let rows_alone = of(PAIR_OF_TOKENS_ALONE);
    let bytes = "return Rows::TILES * Rows::TILE_BLOCKS * SCALE_BLOCK_BYTES;";
    let for_both = "tensor_load_2d_pair_multicast(to, map, k_tile * MAPPED_K, block, counts, (1 << BLOCKS) - 1)";
    vec![
        // Who asks, and for whom.
        columns("scales for the first block alone", "counts, (1 << BLOCKS) - 1)", "counts, 1)"),
        columns_alone("scales for the second block alone", "counts, (1 << BLOCKS) - 1)", "counts, 2)"),
        columns("scales for a block that there is not", "counts, (1 << BLOCKS) - 1)", "counts, 7)"),
        columns("scales for who asks", for_both, "tensor_load_2d_pair(to, map, k_tile * MAPPED_K, block, counts)"),
        columns("both blocks ask for the same scales", "part % BLOCKS == ring.rank", "part % BLOCKS == 0"),
        columns("each block asks for all scales", "part % BLOCKS == ring.rank", "true"),
        columns_alone("nobody asks for scales", "part % BLOCKS == ring.rank", "part % BLOCKS > ring.rank"),
        rows("scales of rows for both blocks", "if constexpr (!Rows::IN_BOTH)", "if constexpr (false)"),
        // What is counted, and where.
        columns("bytes of scales announced by who asks", bytes, "return SCALE_BLOCK_BYTES;"),
        columns_alone(
            "bytes of scales announced twice",
            bytes,
            "return 2 * Rows::TILES * Rows::TILE_BLOCKS * SCALE_BLOCK_BYTES;",
        ),
        rows("no bytes of scales announced", bytes, "return 0;"),
        columns("scales counted by who asks", "ring.first_blocks(ring.full(slot))", "ring.full(slot)"),
        columns_alone(
            "scales counted at an empty stage",
            "first_blocks(ring.full(slot))",
            "first_blocks(ring.empty(slot))",
        ),
        // What is asked for, and where it goes.
        columns(
            "the neighbour's 256 of K",
            "multicast(to, map, k_tile * MAPPED_K",
            "multicast(to, map, (k_tile ^ 1) * MAPPED_K",
        ),
        rows("the next 64 of K", "pair(to, map, k_tile * MAPPED_K", "pair(to, map, k_tile * MAPPED_K + 64"),
        columns("the first product's scales for both", "maps.scales, part / Rows::TILE_BLOCKS)", "maps.scales, 0)"),
        columns("scales of both products in one place", "Rows::OFFSET + part * SCALE_BLOCK_BYTES", "Rows::OFFSET"),
        columns("the first group's blocks of scales for all", "return tile.group * ceil_div(N, 128);", "return 0;"),
        rows("both blocks have the first one's scales of weights", "(WEIGHT_ROWS ? rank * ROWS : 0)", "0"),
        rows_alone("both blocks have the first one's scales of tokens", "(WEIGHT_ROWS ? 0 : rank * ROWS)", "0"),
        columns_alone(
            "every tile with the first one's scales",
            "return tile.first_row + (WEIGHT_ROWS",
            "return 0 * (WEIGHT_ROWS",
        ),
        // When.
        columns_alone(
            "a stage of a pair filled before it is empty",
            "mbarrier_wait(empty(at.slot), at.parity ^ 1);",
            "",
        ),
        Mutant {
            also: &[(
                "            stage.copy_scales(block);",
                "            if (block == 0) tcgen05_commit<PAIR>(ring.empty(at.slot));\n            stage.copy_scales(block);",
            )],
            ..columns(
                "a stage of a pair released before it is multiplied",
                "tcgen05_commit<PAIR>(ring.empty(at.slot));",
                "",
            )
        },
    ]
}

/// What may be wrong where tokens are one row after the other.
fn in_order() -> Vec<Mutant> {
    let of = |variant| Mutant::of(variant, Format::Nvfp4);
    let copied = of(COPIED);
    let token_rows = of(TOKEN_ROWS);
    let slots = of(SLOTS);
    let persistent = of(PERSISTENT);
    let pair = of(PAIR);
    let tall_pair = of(TALL_PAIR);
    let pair_of_tokens = of(PAIR_OF_TOKENS);
    let persistent_pair = of(PERSISTENT_PAIR);
    vec![
        // What is waited for.
        token_rows("a stage not waited for", "ring.wait_full(at);", ""),
        token_rows("a stage filled before it is empty", "mbarrier_wait(empty(at.slot), at.parity ^ 1);", ""),
        persistent(
            "sums not waited for before they are replaced",
            "mbarrier_wait(ring.stored(set), index / SUM_SETS & 1 ^ 1);",
            "",
        ),
        token_rows(
            "sums not waited for before they are stored",
            "mbarrier_wait(ring.sums(set), index / SUM_SETS & 1);",
            "",
        ),
        slots(
            "scales replaced while they are multiplied",
            "mbarrier_wait(ring.empty(before.slot), before.parity);",
            "",
        ),
        copied("copies not waited for", "cp_async_wait_group<COPIES_AHEAD>();", ""),
        copied("the last copies not waited for", "cp_async_wait_group<0>();\n  for", "for"),
        token_rows("loads of tensor memory not waited for", "tcgen05_wait_ld(loaded);", ""),
        // What is told.
        token_rows("a stage never released", "tcgen05_commit<PAIR>(ring.empty(at.slot));", ""),
        token_rows("sums never announced", "if (i == tile.k_tiles - 1) tcgen05_commit<PAIR>(ring.sums(set));", ""),
        persistent("sums never given back", "if (lane_index() == 0) ring.copied_to_registers(set);", ""),
        copied("copies never announced", "if (lane_index() == 0) ring.copied(done.slot);", ""),
        Mutant {
            also: &[(
                "            stage.copy_scales(block);",
                "            if (block == 0) tcgen05_commit<PAIR>(ring.empty(at.slot));\n            stage.copy_scales(block);",
            )],
            ..token_rows("a stage released before it is multiplied", "tcgen05_commit<PAIR>(ring.empty(at.slot));", "")
        },
        Mutant {
            also: &[(
                "tcgen05_fence_before_thread_sync();\n        __syncwarp();\n        if (lane_index() == 0) ring.copied_to_registers(set);",
                "",
            )],
            ..persistent(
                "sums given back before they are loaded",
                "    const int parts = stored.parts();",
                "    const int parts = stored.parts();\n    if (lane_index() == 0) ring.copied_to_registers(set);",
            )
        },
        // Fences.
        token_rows(
            "sums loaded without a fence",
            "tcgen05_fence_after_thread_sync();\n    const u32 from",
            "const u32 from",
        ),
        persistent(
            "sums given back without a fence",
            "tcgen05_fence_before_thread_sync();\n        __syncwarp();",
            "__syncwarp();",
        ),
        persistent(
            "sums replaced without a fence",
            "tcgen05_fence_after_thread_sync();\n      if (elect_one())",
            "if (elect_one())",
        ),
        copied("copies not fenced for the tensor cores", "fence_proxy_async();\n  __syncwarp();", "__syncwarp();"),
        token_rows(
            "tensor memory given back without a fence",
            "  meet();\n  if (warp",
            "  __syncthreads();\n  tcgen05_fence_after_thread_sync();\n  if (warp",
        ),
        // Tensor memory.
        token_rows(
            "tensor memory never given back",
            "if (warp == MULTIPLY_WARP) tcgen05_dealloc<PAIR>(tensor_memory, TENSOR_COLUMNS);\n}",
            "}",
        ),
        token_rows(
            "half of it allocated",
            "ring.tensor_address(), TENSOR_COLUMNS);",
            "ring.tensor_address(), TENSOR_COLUMNS / 2);",
        ),
        token_rows("half of it given back", "tensor_memory, TENSOR_COLUMNS);", "tensor_memory, TENSOR_COLUMNS / 2);"),
        token_rows(
            "it is given back at once",
            "  if (warp == WEIGHT_WARP) load_weights",
            "  if (warp == MULTIPLY_WARP) tcgen05_dealloc<PAIR>(tensor_memory, TENSOR_COLUMNS);\n  if (warp == WEIGHT_WARP) load_weights",
        ),
        token_rows(
            "the second product's sums in the first one's place",
            "sums + WIDTH, rows(0, block), wide(1, block)",
            "sums, rows(0, block), wide(1, block)",
        ),
        persistent("every tile in the same set of sums", "set * SUM_COLUMNS, instruction", "0, instruction"),
        token_rows("every warp loads the first one's lanes", "(u32(warp_index() * 32) << 16)", "0"),
        token_rows("columns loaded twice", "from + product * WIDTH + part * 16", "from + product * WIDTH + part * 8"),
        token_rows("gate and up exchanged", "from + product * WIDTH + part", "from + (1 - product) * WIDTH + part"),
        token_rows("sums begin with what was there", "column, block, i > 0 || block > 0)", "column, block, true)"),
        token_rows("every stage begins anew", "column, block, i > 0 || block > 0)", "column, block, block > 0)"),
        token_rows("nothing is added up", "column, block, i > 0 || block > 0)", "column, block, false)"),
        token_rows("scales in the sums' columns", "tensor_memory + SCALES_COLUMN + slots", "tensor_memory + slots"),
        token_rows(
            "scales of rows two columns on",
            "tile * ROW_SCALE_COLUMNS + block * 4;",
            "tile * ROW_SCALE_COLUMNS + block * 4 + 2;",
        ),
        slots("scales of columns overlap", "+ block * 4 * WIDE_SCALE_BLOCKS;", "+ block * 4;"),
        slots(
            "the second block of scales over the first",
            "wide_scales(tile, block) + part * 4",
            "wide_scales(tile, block)",
        ),
        token_rows(
            "scales of the other half of a block",
            "Rows::first(tile, 0) % 128 / 32;",
            "2 - Rows::first(tile, 0) % 128 / 32;",
        ),
        token_rows("every product with the first 64 of K's scales", "block * 4 * WIDE_SCALE_BLOCKS;", "0 * block;"),
        // Descriptors.
        token_rows("a narrower instruction", "u32(columns / 8) << 17", "u32(columns / 8 - 2) << 17"),
        token_rows("a wider instruction", "u32(columns / 8) << 17", "u32(columns / 8 + 2) << 17"),
        pair("the rows of one block", "u32(rows / 128) << 27", "1u << 27"),
        token_rows("the rows of a pair", "u32(rows / 128) << 27", "2u << 27"),
        token_rows("rows of another type", "return 1u << 7 | 1u << 10", "return 5u << 7 | 1u << 10"),
        token_rows("columns of another type", "return 1u << 7 | 1u << 10", "return 1u << 7 | 2u << 10"),
        token_rows("powers of two for scales", "return 1u << 7", "return 1u << 23 | 1u << 7"),
        token_rows("negated rows", "return 1u << 7", "return 1u << 13 | 1u << 7"),
        token_rows("a swizzle of 64 bytes", "0x4000404000010000", "0x8000404000010000"),
        token_rows("groups of rows 512 bytes apart", "0x4000404000010000", "0x4000402000010000"),
        token_rows("a descriptor of Hopper", "0x4000404000010000", "0x4000004000010000"),
        token_rows("a base offset", "0x4000404000010000", "0x4002404000010000"),
        token_rows("scales swizzled", "0x0000400800010000", "0x4000400800010000"),
        token_rows("groups of scales 256 bytes apart", "0x0000400800010000", "0x0000401000010000"),
        token_rows(
            "64 of K too far",
            "stage + tile * ROW_TILE_BYTES + block * (K_BLOCK / 2)",
            "stage + tile * ROW_TILE_BYTES + block * K_BLOCK",
        ),
        token_rows(
            "the same columns for all of K",
            "tile * WIDE_TILE_BYTES + block * (K_BLOCK / 2)",
            "tile * WIDE_TILE_BYTES",
        ),
        token_rows(
            "the second product with the first one's weights",
            "stage + WIDE_OFFSET + tile * WIDE_TILE_BYTES +",
            "stage + WIDE_OFFSET +",
        ),
        copied("half a tile of weights on", "stage + tile * ROW_TILE_BYTES +", "stage + tile * ROW_TILE_BYTES / 2 +"),
        copied(
            "scales of the neighbour",
            "ROW_SCALES_OFFSET + tile * SCALE_BLOCK_BYTES + block * 512",
            "ROW_SCALES_OFFSET + tile * SCALE_BLOCK_BYTES + (block ^ 1) * 512",
        ),
        // Counts of barriers.
        token_rows(
            "one arrival too few for a stage",
            "BLOCKS * (LOADERS + COPY_WARPS)",
            "BLOCKS * (LOADERS + COPY_WARPS) - 1",
        ),
        token_rows(
            "one arrival too many for a stage",
            "BLOCKS * (LOADERS + COPY_WARPS)",
            "BLOCKS * (LOADERS + COPY_WARPS) + 1",
        ),
        persistent("one arrival too few for sums", "BLOCKS * STORE_THREADS / 32", "BLOCKS * STORE_THREADS / 32 - 1"),
        token_rows(
            "two arrivals at an empty stage",
            "mbarrier_init(empty(slot), 1);",
            "mbarrier_init(empty(slot), 2);",
        ),
        token_rows(
            "bytes of one product announced",
            "BLOCK_PRODUCTS * WEIGHT_TILE_BYTES + Weight",
            "WEIGHT_TILE_BYTES + Weight",
        ),
        token_rows(
            "bytes of scales not announced",
            "return max(blocks(params, tile, rank), 0) * Rows::TILES * blocks_of(k_tile) * 512;",
            "return 0;",
        ),
        token_rows("a round of the ring forgotten", "slot = 0, parity ^= 1;", "slot = 0;"),
        // What is loaded and stored.
        token_rows(
            "twice as far along K",
            "k_tile * (TILE_K / 2), row, full(slot)",
            "k_tile * TILE_K, row, full(slot)",
        ),
        token_rows("the first group's weights for all", "tile.group * N + tile.weight_row", "tile.weight_row"),
        token_rows("the first group's scales for all", "+ tile.group * SCALE_BYTES_PER_GROUP", ""),
        token_rows("blocks of zeros behind K", "k_tile == K_TILES - 1 ? LAST_BLOCKS : K_BLOCKS", "K_BLOCKS"),
        token_rows(
            "the last 64 of K lost",
            "k_tile == K_TILES - 1 ? LAST_BLOCKS : K_BLOCKS",
            "k_tile == K_TILES - 1 ? LAST_BLOCKS - 1 : K_BLOCKS",
        ),
        copied("scales of the neighbour row", "scale_row(first) + row,", "(scale_row(first) + row ^ 1),"),
        copied("scales in other places", "row % 32 * 16 + row % 128 / 32 * 4", "row % 128 * 4"),
        copied("every lane asks", "if (elect_one()) {\n        const StageAt", "{\n        const StageAt"),
        token_rows(
            "a row too many stored",
            "if (token >= tile.rows) return;\n    float",
            "if (token > tile.rows) return;\n    float",
        ),
        copied("a token too many stored", "if (token < tile.rows && even < N)", "if (token <= tile.rows && even < N)"),
        copied("columns exchanged", "column & ~1)", "column)"),
        copied("the neighbour's other token", "is_odd ? mine[0] : mine[1])", "mine[0])"),
        persistent("tiles left out", "blockIdx.x + index * gridDim.x", "blockIdx.x + 2 * index * gridDim.x"),
        // Pairs.
        pair(
            "loads that only their own block is told of",
            "if constexpr (PAIR)\n      tensor_load_2d_pair",
            "if constexpr (!PAIR)\n      tensor_load_2d_pair",
        ),
        pair("both blocks multiply", "warp == MULTIPLY_WARP && ring.rank == 0", "warp == MULTIPLY_WARP"),
        pair(
            "the second block multiplies",
            "warp == MULTIPLY_WARP && ring.rank == 0",
            "warp == MULTIPLY_WARP && ring.rank == 1",
        ),
        pair("each block counts for itself", "map_shared_rank(barrier, 0)", "map_shared_rank(barrier, rank)"),
        pair_of_tokens(
            "halves of the weights exchanged",
            "first_column() + rank * (WEIGHT_ROWS",
            "first_column() + (1 - rank) * (WEIGHT_ROWS",
        ),
        tall_pair("halves of the tokens where there are none", "width() / BLOCKS : ROWS", "WIDTH_HERE : ROWS"),
        pair(
            "each block stores the first one's columns",
            "tile.first_column() + rank * ROWS + lane",
            "tile.first_column() + lane",
        ),
        pair_of_tokens(
            "each block has the first one's tokens",
            "first_row + rank * (WEIGHT_ROWS",
            "first_row + 0 * (WEIGHT_ROWS",
        ),
        pair_of_tokens("each block has the first one's scales", "(WEIGHT_ROWS ? 0 : rank * ROWS)", "0"),
        pair("copies not released to the other block", "if constexpr (PAIR) fence_release_shared();", ""),
        pair("copies of the other block not acquired", "fence_acquire_shared();", ""),
        pair(
            "copies acquired before they are waited for",
            "      mbarrier_wait_relaxed_cluster(full(at.slot), at.parity);\n      fence_acquire_shared();",
            "      fence_acquire_shared();\n      mbarrier_wait_relaxed_cluster(full(at.slot), at.parity);",
        ),
        Mutant {
            also: &[("if constexpr (PAIR) fence_release_shared();", "")],
            ..pair(
                "copies released before they are fenced",
                "  fence_proxy_async();\n  __syncwarp();\n",
                "  if (lane_index() == 0) fence_release_shared();\n  fence_proxy_async();\n  __syncwarp();\n",
            )
        },
        persistent_pair("sums of the second block not waited for", "BLOCKS * STORE_THREADS / 32", "STORE_THREADS / 32"),
        persistent_pair(
            "its end not waited for",
            "  meet();\n  if (warp",
            "  tcgen05_fence_before_thread_sync();\n  __syncthreads();\n  tcgen05_fence_after_thread_sync();\n  if (warp",
        ),
    ]
}
