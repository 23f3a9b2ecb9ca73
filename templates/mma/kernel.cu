// <{ name }>
//
//   C = combine(A·Bᵀ), or combine(A·B1ᵀ, A·B2ᵀ)      A [M, K], B [N, K], C [M, N], all row-major
//
// Weights (B) are the 16 rows of mma.sync.m16n8k16, tokens (A) its 8 columns, so that a tile of few tokens wastes
// nothing. One block computes TOKENS × COLUMNS of C:
//
//               ┌──────────── COLUMNS ────────────┐
//          ┌──  │ warp 0 │ warp 1 │ … WARPS_COLUMNS│   a warp: 16·WARP_M16 columns × 8·WARP_N8 tokens;
//   TOKENS │    │────────┼────────┼───────────────│   warps in a row read the same tokens,
//          └──  │ … × WARPS_TOKENS               │   warps in a column the same weights
//
// Where that leaves warps over, WARPS_K of them share each place and take turns with the K blocks of a stage; their sums
// are added in shared memory at the end, always in the same order.
//
// Shared memory: STAGES × { tokens' values and scales, weights' values and scales (once or twice) }, each stage TILE_K
// deep, filled by cp.async while older stages are multiplied. NVFP4 weights stay NVFP4 in shared memory and become 16-bit
// values, exactly, on their way into registers; NVFP4 tokens, which every warp of a row needs, do so once a stage, in
// shared memory. Every warp loads and every warp multiplies; the only waiting is cp.async.wait_group and one
// __syncthreads a stage (two with NVFP4 tokens).

#include "common/base.cuh"

<% include "common/constants.cu" %>
namespace ws {

inline constexpr int WARPS_TOKENS = <{ warps_tokens }>;
inline constexpr int WARPS_COLUMNS = <{ warps_columns }>;
inline constexpr int WARPS_K = <{ warps_k }>;

}  // namespace ws

// What the variant and the formats choose, by file, and what the others know of it:
//   compute/, e2m1, scales/   16-bit products; NVFP4 to 16-bit values; where block scales lie
//   load/        a tile of rows: tokens(…) of A, rows_of_group(…) of B, load(offset, rows, k_tile), ready(offset), fragment(…)
//   schedule/    schedule(params, block): which part of C and of K a block has, if any
//   warps/       Accumulators, multiply_stage(sums, stage, weights), add_up(sums)
//   fusion/      Fusion: multiply(params, block) along K into `sums`, of COUNT products; product(params, i) says which
//   activation/, output/      activate(x), linear(up); Output::store(c, element, values)
//   row_scale/, bias/         RowScale, Bias: load(params, group, column); scaled(…), added(product, value)
//   destination/ Destination: row(params, row) of C, is_there(…) and scaled(…) for a row of the product
//   epilogue/    for_each_run(block, store): which elements of C a lane has
//   result/      store_result(params, block, fusion): as C, or as partial sums
#include "common/ptx.cuh"
#include "mma/layout.cuh"
#include "common/compute/<{ compute }>.cuh"
#include "common/e2m1.cuh"
#include "common/scales/<{ scales }>.cuh"
#include "mma/load/<{ load_a }>.cuh"
#include "mma/load/<{ load_b }>.cuh"
#include "mma/schedule/<{ schedule }>.cuh"
#include "mma/pipeline.cuh"
#include "mma/warps/<{ warps }>.cuh"
#include "mma/fusion/<{ fusion }>.cuh"
#include "common/activation/<{ activation }>.cuh"
#include "common/output/<{ c }>.cuh"
#include "common/row_scale/<{ row_scale }>.cuh"
#include "common/bias/<{ bias }>.cuh"
#include "common/combine.cuh"
#include "common/destination/<{ destination }>.cuh"
#include "mma/epilogue/<{ epilogue }>.cuh"
#include "mma/result/<{ result }>.cuh"

extern "C" __global__ void __launch_bounds__(ws::THREADS, ws::BLOCKS_PER_SM) <{ symbol }>(const __grid_constant__ ws::<{ params }> params) {
  using namespace ws;
  using TokenTile = <{ tile_a }><TOKENS, NaturalOrder>;
  using WeightTile = <{ tile_b }><COLUMNS, FragmentOrder>;

  Block block;
  if (!schedule(params, block)) return;

  Fusion<TokenTile, WeightTile> fusion;
  fusion.multiply(params, block);
  add_up(fusion.sums);
  if (warp_k() == 0) store_result(params, block, fusion);
}
