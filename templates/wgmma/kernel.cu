// <{ name }>
//
//   C = combine(A·Bᵀ), or combine(A·B1ᵀ, A·B2ᵀ)      A [M, K], B prepared [N, K] (src/format/prepared.rs), C [M, N]
//
// Weights (B) are the 64 rows of wgmma.m64nTOKENSk16 and come from registers, where they are decoded; tokens (A) are its
// columns and come from shared memory, as 16-bit values. (Of e4m3 tokens weights become e4m3, too: m64nTOKENSk32.) A block
// computes TOKENS × COLUMNS of C:
//
//   producers                                                               consumers
//   weights (bulk copies)  ─┐                                             ┌─ warpgroup: m64 tile 0, every K_GROUPSth stage
//                           ├─▶ ring of STAGES × { tokens, TILES m64 } ─▶ ├─ warpgroup: m64 tile 1 …
//   tokens (tokens/)       ─┘   full ▸ … ▸ empty                          └─ … PARTS × K_GROUPS of them
//
// Sums of K groups meet in shared memory, those of the blocks of a cluster in distributed shared memory, those of other
// splits in the workspace, always in the same order.

#include "common/base.cuh"

<% include "common/constants.cu" %>
namespace ws {

inline constexpr int CLUSTER_SPLITS = <{ cluster_splits }>;  // of K, in one cluster
inline constexpr int MULTICAST = <{ multicast }>;            // blocks of a cluster that share tokens
inline constexpr bool PERSISTENT = <{ persistent }>;
[[maybe_unused]] inline constexpr bool PREPASS = <{ has_prepass }>;  // NVFP4 tokens are decoded by a kernel before

// Ascending: how many tokens a tile may be loaded and multiplied as.
#define WS_WIDTHS <{ width_list }>

inline constexpr int TILES_PER_PART = <{ tiles_per_part }>;
inline constexpr int K_GROUPS = <{ k_groups }>;
inline constexpr int PRODUCT_GROUPS = <{ product_groups }>;
inline constexpr int TILE_GROUPS = <{ tile_groups }>;          // that have every so manyth tile, and stage of the ring, each
// Parts of a tile's tokens that a consumer has one of, and warpgroups that decode weights into shared memory. No variables, as LIMIT.
enum : int { TOKEN_PARTS = <{ token_parts }>, DECODERS = <{ decoders }> };
inline constexpr int PASSES = <{ passes }>;                  // over the weights of a tile
inline constexpr int TOKEN_WARPS = <{ token_warps }>;          // of a tile group, that bring tokens by themselves; they arrive beside who loads weights
// A warp of its own stores a persistent block's tiles, which it also finds: where. No variables, as LIMIT.
enum : int { STORES_APART = <{ stores_apart }>, FOUND_OFFSET = <{ found_offset }> };
// Tokens are copied with cp.async; each thread arrives when its copies have come. No variable, as LIMIT.
enum : bool { COPIED = <{ copied }> };
// A last tile that is not whole has a box of tokens as high as its rows.
enum : bool { HAS_FEW = <{ has_few }> };
// Tokens have factors for each 128 of K, which come in this way, too.
enum : bool { K_FACTORS = <{ has_k_factors }> };
inline constexpr int FULL_ARRIVALS = (DECODERS > 0 && COPIED ? 0 : 1) + TOKEN_WARPS * (COPIED ? 32 : 1) + (K_FACTORS && !COPIED ? 32 : 0);
inline constexpr int EMPTY_ARRIVALS = <{ empty_arrivals }>;

inline constexpr int BARRIERS_OFFSET = <{ barriers_offset }>;
[[maybe_unused]] inline constexpr int TABLE_OFFSET = <{ table_offset }>;
inline constexpr int SCRATCH_OFFSET = <{ scratch_offset }>;
inline constexpr int SCRATCH_BYTES = <{ scratch_bytes }>;    // of each tile group
// The table that weights become e4m3 by, and elements along K of 128 bytes of tokens. No variables, as LIMIT.
enum : int { DECODE_OFFSET = <{ decode_offset }>, LINE_K = <{ line_k }> };
// Lines of decoded weights in shared memory: how many, and where.
enum : int { DECODED_SLOTS = <{ decoded_slots }>, DECODED_OFFSET = <{ decoded_offset }> };
// Of the factors of a tile, and of those of tokens along K, of all stages.
enum : int { FACTORS_OFFSET = <{ factors_offset }>, K_FACTORS_OFFSET = <{ k_factors_offset }> };
// Registers of a thread at the launch, and once it knows what it does: of who multiplies, of who loads, of who decodes. 0: as many as at
// the launch.
enum : int {
  LAUNCH_REGISTERS = <{ launch_registers }>,
  CONSUMER_REGISTERS = <{ consumer_registers }>,
  PRODUCER_REGISTERS = <{ producer_registers }>,
  DECODER_REGISTERS = <{ decoder_registers }>
};
// Tokens of a tile are multiplied in so many parts, one after the other, with registers for the sums of one.
enum : int { SUM_PARTS = <{ sum_parts }> };
inline constexpr int EXCHANGE_OFFSET = <{ exchange_offset }>;
inline constexpr int EXCHANGE_BYTES = <{ exchange_bytes }>;

}  // namespace ws

// What the variant and the formats choose, by file, and what the others know of it:
//   decode/, weights/, rows/   prepared weights to what is multiplied: 16-bit or e4m3 values, in the registers of the instruction; WeightBlock
//   compute/, e2m1, scales/   NVFP4 tokens to 16-bit values; where block scales lie
//   k_factors/   LineFactors: promote<WIDTH, FIRST>() the sums of the line of K that they follow; FactorShare: what a thread brings
//   instruction/, stage/   one group of instructions, and those of a stage; sums that are cleared, finished and read
//   loop/        MainLoop: a warpgroup's way along K, with weights in registers or in shared memory
//   unit/        Units: what makes true sums of those, and what a tile asks for before; TileAlphas, of its group
//   schedule/    Schedule: the tiles of a block, one after the other
//   tokens/      Tokens: bytes(tile) of a stage, load(…) all stages of a tile by WARPS warps, copy(…) one by a thread
//   fusion/      Fusion: multiply(sums, …) along K for COUNT sets of sums; column(consumer, held) for HELD_COLUMNS of a thread;
//                sum(sums, product, …); PARTIAL_PRODUCTS products leave as partial sums
//   activation/, output/               activate(x), linear(up); store_columns(params, group, row, column, values)
//   row_scale/, bias/         RowScale, Bias: prefetch(…) and load(params, group, column); scaled(…), added(product, value)
//   destination/ Destination: row(params, row) of C, is_there(…) and scaled(…) for a row of the product
//   found.cuh    for_each_found_tile(…), where the warp that stores tiles also finds them
//   epilogue/    store_tile(…, value) of a tile's elements, reuse_scratch(consumer) before a further tile, finish_stores(); store_tiles(…), by a
//                warp of its own
//   result/      prefetch_columns(…), before the products; store_result(…, sums): as C, or as partial sums; Store, of one width
//   warps/       run(…, consume): who produces, and who consumes; InlineProducer, for consumers that also load
#include "common/stuck/<{ stuck }>.cuh"
#include "wgmma/ptx.cuh"
#include "wgmma/decode/<{ compute }>.cuh"
#include "wgmma/weights/<{ weights }>.cuh"
#include "wgmma/layout.cuh"
#include "wgmma/pipeline.cuh"
#include "wgmma/rows/<{ rows }>.cuh"
#include "common/compute/<{ token_compute }>.cuh"
#include "common/e2m1.cuh"
#include "common/scales/<{ scales }>.cuh"
#include "wgmma/schedule/<{ schedule }>.cuh"
#include "wgmma/load.cuh"
#include "wgmma/k_factors/<{ k_factors }>.cuh"
#include "wgmma/tokens/<{ load_tokens }>.cuh"
#include "wgmma/descriptor.cuh"
#include "wgmma/instruction/<{ factors }>.cuh"

<{ instruction }>
#include "wgmma/stage/<{ stage }>.cuh"
#include "wgmma/loop/<{ loop }>.cuh"
#include "wgmma/main_loop.cuh"
#include "wgmma/sums.cuh"
#include "wgmma/fusion/<{ fusion }>.cuh"
#include "common/activation/<{ activation }>.cuh"
#include "common/output/<{ c }>.cuh"
#include "common/output/columns.cuh"
#include "common/row_scale/<{ row_scale }>.cuh"
#include "common/bias/<{ bias }>.cuh"
#include "common/combine.cuh"
#include "common/destination/<{ destination }>.cuh"
#include "wgmma/unit/<{ unit }>.cuh"
#include "wgmma/found.cuh"
#include "wgmma/epilogue/<% if stores_apart == 1 %>apart<% else %><{ epilogue }><% endif %>.cuh"
#include "wgmma/result/<{ result }>.cuh"
#include "wgmma/result/store.cuh"
#include "wgmma/warps/<{ warps }>.cuh"

extern "C" __global__ void __launch_bounds__(ws::THREADS, ws::BLOCKS_PER_SM)
<{ symbol }>(const __grid_constant__ ws::<{ params }> params, const __grid_constant__ ws::TensorMaps tokens) {
  using namespace ws;
  declare_sums();
  const Ring ring{shared_base()};
  if (threadIdx.x == 0) {
    if constexpr (TOKEN_WARPS == 0) prefetch_tensor_map(tokens.of[0]);  // else there is none
    ring.initialise();
  }
  prepare_decoding(ring.base);
  // Nobody reaches into a block of the cluster before it has begun: who multicasts does so at once, who sends sums waits
  // for it when it has some.
  if constexpr (MULTICAST * CLUSTER_SPLITS > 1) cluster_arrive();
  if constexpr (MULTICAST > 1) cluster_wait();
  __syncthreads();
  const Schedule schedule(params, ring);

  run(params, tokens, ring, schedule, [&](const Tile& tile, const ConsumerId& consumer, u32 stage, const InlineProducer& inline_producer) {
    if constexpr (PERSISTENT) reuse_scratch(consumer);
    ask_for_factors(params, ring, tile, consumer);
    const TileAlphas alphas(params, tile);
    prefetch_columns(params, tile, consumer);
    if constexpr (STORES_APART) {
      along_k_in<WholeRows>(TileWidths(), ring, consumer, stage, tile, inline_producer, Store{params, ring, tile, consumer, alphas});
      return;
    }
    float sums[Fusion::COUNT][ACCUMULATORS];
    Fusion::multiply(sums, params, ring, consumer, stage, tile, inline_producer);
    wait_for_factors();
    // Scratch memory may be where the ring is.
    if constexpr (!PERSISTENT || HAS_FACTORS) group_sync(consumer);
    add_k_groups(sums, consumer);
    add_cluster_splits(sums, ring, consumer);
    store_result<HELD_N8>(params, ring, tile, consumer, held_token(tile, consumer), alphas.of(consumer), sums);
  });

  // Others of the cluster may still arrive at barriers of this block.
  if constexpr (MULTICAST > 1) {
    cluster_arrive();
    cluster_wait();
  }
}
