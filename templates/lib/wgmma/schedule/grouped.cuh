// A block for each tile of a grouped problem: x walks the tiles of columns, y those of tokens of all groups, z the splits
// of K. The grid has room for every way to divide the rows; blocks that no group needs end at once.
#pragma once

#include "groups/grouped.cuh"

namespace ws {

struct Schedule {
  FoundTile found;

  __device__ Schedule(const Params& params, const Ring&) {
    wait_for_dependencies();  // the offsets may be their result
    found = find_tile(params, blockIdx.y);
  }

  // The `index`th tile of this block; false behind the last.
  __device__ bool tile(const Params&, int index, Tile& tile) const {
    tile.group = found.group;
    tile.first_row = found.first_row;
    tile.rows = found.rows;
    tile.column_tile = blockIdx.x;
    tile.take_split(SPLITS * CLUSTER_SPLITS == 1 ? 0 : blockIdx.z);
    return index == 0 && found.group >= 0;
  }
};

}  // namespace ws
