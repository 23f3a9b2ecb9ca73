// Blocks of a grouped problem: as for one group, but which rows an x stands for is found on the device. The grid has
// room for every way to divide the rows; blocks that no group needs end at once.
#pragma once

#include "common/groups/find.cuh"
#include "common/groups/grouped.cuh"

namespace ws {

__device__ __forceinline__ bool schedule(const Params& params, Block& block) {
  schedule_columns(block);
  const FoundTile found = find_tile(params, blockIdx.x);
  block.group = found.group;
  block.first_row = found.first_row;
  block.rows = found.rows;
  return found.group >= 0;
}

}  // namespace ws
