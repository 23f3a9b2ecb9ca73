// A block for each tile of a grouped problem, the largest first, as the device takes them: x walks the tiles of columns, y
// those of tokens of all groups, z the splits of K. The grid has room for every way to divide the rows; blocks that no
// group needs end at once.
#pragma once

#include "wgmma/schedule/table.cuh"

namespace ws {

struct Schedule {
  const GroupTable table;

  __device__ Schedule(const Params& params, const Ring&) : table(params) {}

  // The `index`th tile of this block; false behind the last.
  __device__ bool tile(const Params&, int index, Tile& tile) const {
    tile.column_tile = blockIdx.x;
    tile.take_split(SPLITS * CLUSTER_SPLITS == 1 ? 0 : blockIdx.z);
    return index == 0 && table.find(blockIdx.y, tile);
  }
};

}  // namespace ws
