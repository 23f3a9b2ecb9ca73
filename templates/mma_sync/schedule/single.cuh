// Blocks of an ungrouped problem.
#pragma once

#include "common/groups/single.cuh"

namespace ws {

__device__ __forceinline__ bool schedule(const Params& params, Block& block) {
  const TilePlace place = tile_place();
  block.group = 0;
  block.first_row = place.token_tile * TOKENS;
  block.rows = params.m - block.first_row;
  schedule_columns(block, place.column_tile);
  return block.rows > 0;
}

}  // namespace ws
