// A block for each tile: x walks the tiles of columns, y those of tokens, z the splits of K.
#pragma once

#include "common/groups/single.cuh"

namespace ws {

struct Schedule {
  __device__ explicit Schedule(const Params&, const Ring&) {}

  // The `index`th tile of this block; false behind the last.
  __device__ bool tile(const Params& params, int index, Tile& tile) const {
    tile.group = 0;
    tile.first_row = blockIdx.y * TOKENS;
    tile.rows = params.m - tile.first_row;
    tile.column_tile = blockIdx.x;
    tile.take_split(SPLITS * CLUSTER_SPLITS == 1 ? 0 : blockIdx.z);
    return index == 0;
  }
};

}  // namespace ws
