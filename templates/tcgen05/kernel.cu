// <{ name }>
//
//   C = combine(A·Bᵀ), or combine(A·B1ᵀ, A·B2ᵀ)      A [M, K], B [N, K], C [M, N], all row-major; A and B in NVFP4
//
// tcgen05.mma multiplies NVFP4 as it is: 128 rows (256 by a pair of blocks) × WIDTH columns × 64 of K, from shared memory, with
// block scales and fp32 sums in tensor memory. Weights are its rows and tokens its columns where tokens are few, the other way
// round where they are many.
//
//   weights' codes (TMA) ─┐                                      one lane: scales to tensor memory,       four warps:
//   tokens' codes (TMA)  ─┼─▶ ring of STAGES × { rows, columns, ─▶ products, commits                    ─▶ sums to registers,
//   scales (scales/)     ─┘   their scales }   full ▸ … ▸ empty      sums ▸ … ▸ stored                     combine, store C
//
// Of a pair each block loads its rows and half of the columns, the first one multiplies for both, and each stores its rows.

#include "common/base.cuh"

<% include "common/constants.cu" %>
namespace ws {

inline constexpr bool PAIR = <{ pair }>;
inline constexpr bool PERSISTENT = <{ persistent }>;
inline constexpr bool WEIGHT_ROWS = <{ weight_rows }>;         // of the instruction; else tokens are
inline constexpr bool GATHERED = <{ gathered }>;               // rows of A are taken by their numbers
inline constexpr int BLOCK_PRODUCTS = <{ block_products }>;    // of a launch
inline constexpr bool LOADED_WEIGHT_SCALES = <{ loaded_weight_scales }>;  // by the warps that load codes; else copied
inline constexpr bool LOADED_TOKEN_SCALES = <{ loaded_token_scales }>;
inline constexpr int WIDE_SCALE_BLOCKS = <{ wide_scale_blocks }>;  // of 128 rows, of a tile that is columns
inline constexpr int COPY_WARPS = <{ copy_warps }>;
inline constexpr int SUM_SETS = <{ sum_sets }>;                // tiles whose sums tensor memory holds at a time
inline constexpr int SCALE_SLOTS = <{ scale_slots }>;          // stages whose scales it holds
inline constexpr int TENSOR_COLUMNS = <{ tensor_columns }>;    // of it that are allocated
inline constexpr int BARRIERS_OFFSET = <{ barriers_offset }>;

}  // namespace ws

// What the variant and the formats choose, by file, and what the others know of it:
//   schedule/    take_tile(params, index, tile): the tiles of a block, one after the other
//   scales/      bulk, mapped: Maps, and LoadedScales: how block scales come that are not copied; common/scales/: where they lie
//   tokens/      mapped, gathered: how codes of tokens come, prefetch_tokens(params, maps), and TokenScales
//   side/        StoredTile: which part of C a thread has, store(…), store_partial(…)
//   activation/, output/      activate(x), linear(up); store_columns(params, group, row, column, values)
//   row_scale/, bias/         RowScale, Bias: load(params, group, column); scaled(…), added(product, value)
//   destination/ Destination: row(params, row) of C, is_there(…) and scaled(…) for a row of the product
//   result/      Result: whole sums as C, or as partial sums
#include "tcgen05/ptx.cuh"
#include "tcgen05/layout.cuh"
#include "common/scales/<{ scales }>.cuh"
#include "tcgen05/schedule/<{ schedule }>.cuh"
#include "tcgen05/pipeline.cuh"
#include "tcgen05/scales/rows.cuh"
#include "tcgen05/scales/<{ load_scales }>.cuh"
#include "tcgen05/scales/scales.cuh"
#include "tcgen05/load.cuh"
#include "tcgen05/tokens/<{ load_tokens }>.cuh"
#include "tcgen05/multiply.cuh"
#include "common/activation/<{ activation }>.cuh"
#include "common/output/<{ c }>.cuh"
#include "common/output/columns.cuh"
#include "common/row_scale/<{ row_scale }>.cuh"
#include "common/bias/<{ bias }>.cuh"
#include "common/combine.cuh"
#include "common/destination/<{ destination }>.cuh"
#include "tcgen05/side/<{ side }>.cuh"
#include "tcgen05/result/<{ result }>.cuh"
#include "tcgen05/store.cuh"

extern "C" __global__ void __launch_bounds__(ws::THREADS, ws::BLOCKS_PER_SM)
<{ symbol }>(const __grid_constant__ ws::<{ params }> params, const __grid_constant__ ws::Maps maps) {
  using namespace ws;
  const Ring ring{shared_base(), static_cast<u32>(pair_rank())};
  const int warp = warp_index();
  if (warp == WEIGHT_WARP && elect_one()) {
    prefetch_tensor_map(maps.weights[product_of(params, 0)]);
    WeightScales::prefetch(params, maps);
    prefetch_tokens(params, maps);
    ring.initialise();
  }
  if (warp == MULTIPLY_WARP) {
    tcgen05_alloc<PAIR>(ring.tensor_address(), TENSOR_COLUMNS);
    tcgen05_relinquish_alloc_permit<PAIR>();
  }
  // Nobody reaches into the other block of a pair before its barriers are there.
  meet();
  const u32 tensor_memory = *reinterpret_cast<const u32*>(shared_memory + (ring.tensor_address() - ring.base));
  wait_for_groups(params);

  if (warp == WEIGHT_WARP) load_weights(params, maps, ring);
  if (warp == TOKEN_WARP) load_tokens(params, maps, ring);
  if (warp == MULTIPLY_WARP && ring.rank == 0) multiply_tiles(params, ring, tensor_memory);
  if constexpr (COPY_WARPS > 0)
    if (warp >= COPY_WARP) copy_scales<WeightScales, TokenScales>(params, ring);
  if (warp < WEIGHT_WARP) store_tiles(params, ring, tensor_memory);

  // All products have been stored; of a pair, by both blocks, which may reach into each other until then.
  meet();
  if (warp == MULTIPLY_WARP) tcgen05_dealloc<PAIR>(tensor_memory, TENSOR_COLUMNS);
}
