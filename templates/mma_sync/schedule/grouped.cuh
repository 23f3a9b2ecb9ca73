// Blocks of a grouped problem: as for one group, but which rows a tile has is found on the device. The grid has
// room for every way to divide the rows; blocks that no group needs end at once.
#pragma once

#include "common/groups/find.cuh"
#include "common/groups/grouped.cuh"

namespace ws {

__device__ __forceinline__ bool schedule(const Params& params, Block& block) {
  const TilePlace place = tile_place();
  schedule_columns(block, place.column_tile);
  const FoundTile found = find_tile(params, place.token_tile);
  block.group = found.group;
  block.first_row = found.first_row;
  block.rows = found.rows;
  return found.group >= 0;
}

}  // namespace ws
