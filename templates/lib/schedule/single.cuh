// Blocks of an ungrouped problem: x walks the tiles of tokens (so that blocks which share weights run together),
// y the tiles of columns, z the splits of K.
#pragma once

namespace ws {

static_assert(GROUPS == 1, "one group");

__device__ __forceinline__ int group_of_row(const Params& params, int row) { return row < params.m ? 0 : -1; }

__device__ __forceinline__ bool schedule(const Params& params, Block& block) {
  constexpr int PER_SPLIT = ceil_div(K_TILES, SPLITS);
  block.group = 0;
  block.first_row = blockIdx.x * TOKENS;
  block.rows = params.m - block.first_row;
  block.first_column = blockIdx.y * COLUMNS;
  block.columns = N - block.first_column;
  block.split = blockIdx.z;
  block.first_k_tile = block.split * PER_SPLIT;
  block.k_tiles = min(PER_SPLIT, K_TILES - block.first_k_tile);
  return block.rows > 0;
}

}  // namespace ws
