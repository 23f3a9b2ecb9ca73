
// What the variant chooses, by file, and what the others know of it:
//   schedule/    schedule(params, block): which part of C and of K a block has, if any
//   fusion/      Fusion: multiply(params, block) along K into `sums`, of COUNT products; product(params, i) says which
//   activation/, output/      activate(x), linear(up); store_columns(params, group, row, column, values)
//   row_scale/, bias/         RowScale, Bias: load(params, group, column); scaled(…), added(product, value)
//   destination/ Destination: row(params, row) of C, is_there(…) and scaled(…) for a row of the product
//   epilogue/    for_each_run(block, store): which elements of C a lane has
//   result/      store_result(params, block, fusion): as C, or as partial sums
#include "mma_sync/schedule/<{ schedule }>.cuh"
#include "mma_sync/pipeline.cuh"
#include "mma_sync/fusion/<{ fusion }>.cuh"
#include "common/activation/<{ activation }>.cuh"
#include "common/output/<{ c }>.cuh"
#include "common/output/columns.cuh"
#include "common/row_scale/<{ row_scale }>.cuh"
#include "common/bias/<{ bias }>.cuh"
#include "common/combine.cuh"
#include "common/destination/<{ destination }>.cuh"
#include "mma_sync/epilogue/<{ epilogue }>.cuh"
#include "mma_sync/result/<{ result }>.cuh"

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
