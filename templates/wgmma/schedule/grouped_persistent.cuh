// A grouped problem by as many blocks as run at once, in a static schedule: each takes its share of the tiles, the largest
// first, to and fro over the blocks, so that all end at about the same time.
#pragma once

#include "wgmma/schedule/table.cuh"

namespace ws {

struct Schedule {
  const GroupTable table;

  __device__ Schedule(const Params& params, const Ring&) : table(params) {}

  // The `index`th tile of this block; false behind the last.
  __device__ bool tile(const Params&, int index, Tile& tile) const {
    const int turn = index % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x;
    const int ordinal = index * gridDim.x + turn;
    tile.column_tile = ordinal % COLUMN_TILES;
    tile.take_split(0);
    return table.find(ordinal / COLUMN_TILES, tile);
  }
};

}  // namespace ws
