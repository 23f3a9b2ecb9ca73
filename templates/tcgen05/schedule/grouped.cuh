// The tiles of a block of a grouped problem: as for one group, but which rows a tile has is found on the device, by every warp
// for itself. The grid has room for every way to divide the rows; blocks that no group needs end at once. Persistent: tiles of
// columns follow each other, so that those of the same tokens run together.
#pragma once

#include "common/groups/find.cuh"

namespace ws {

// The `index`th tile of this block; false behind the last. By a converged warp.
__device__ __forceinline__ bool take_tile(const Params& params, int index, Tile& tile) {
  const int ordinal = blockIdx.x + index * gridDim.x;
  tile.column_tile = PERSISTENT ? ordinal % COLUMN_TILES : blockIdx.y;
  const FoundTile found = find_tile(params, PERSISTENT ? ordinal / COLUMN_TILES : blockIdx.x);
  tile.group = found.group;
  tile.first_row = found.first_row;
  tile.rows = found.rows;
  tile.take_split(SPLITS == 1 ? 0 : blockIdx.z / BLOCKS);
  return found.group >= 0 && (PERSISTENT || index == 0);
}

// The offsets may be the result of the kernel before.
__device__ __forceinline__ void wait_for_groups(const Params& params) {
  if (!params.settled) wait_for_dependencies();
}

}  // namespace ws
