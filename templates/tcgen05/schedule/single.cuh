// The tiles of a block of an ungrouped problem. A block (or pair) for each: x walks the tiles of tokens, so that those which
// share weights run together, y the tiles of columns, z the splits of K. Persistent: as many as run at once, each with several.
#pragma once

#include "common/groups/single.cuh"

namespace ws {

// The `index`th tile of this block; false behind the last.
__device__ __forceinline__ bool take_tile(const Params& params, int index, Tile& tile) {
  tile.group = 0;
  const int token_tiles = ceil_div(params.m, TOKENS), ordinal = blockIdx.x + index * gridDim.x;
  const int token_tile = PERSISTENT ? ordinal % token_tiles : blockIdx.x;
  tile.column_tile = PERSISTENT ? ordinal / token_tiles : blockIdx.y;
  tile.first_row = token_tile * TOKENS;
  tile.rows = params.m - tile.first_row;
  tile.take_split(SPLITS == 1 ? 0 : blockIdx.z / BLOCKS);
  return PERSISTENT ? tile.column_tile < COLUMN_TILES : index == 0;
}

// Nothing is read to find a tile.
__device__ __forceinline__ void wait_for_groups(const Params&) {}

}  // namespace ws
