// The tiles of a block of an ungrouped problem. A block for each: x walks the tiles of columns, y those of tokens, z the
// splits of K. Persistent: as many blocks as run at once, each with several; tiles that follow each other have the same
// weights, in bands where tokens are too many for the L2 cache.
#pragma once

#include "common/groups/single.cuh"
#include "wgmma/schedule/bands.cuh"

namespace ws {

struct Schedule {
  __device__ explicit Schedule(const Params&, const Ring&) {}

  // The `index`th tile of this block; false behind the last.
  __device__ bool tile(const Params& params, int index, Tile& tile) const {
    tile.group = 0;
    if constexpr (PERSISTENT) {
      const int token_tiles = ceil_div(params.m, TOKENS), ordinal = blockIdx.x + index * gridDim.x;
      const bool in_bands = TOKENS >= TALL && token_tiles > CACHED_TILES;
      if (in_bands && ordinal >= token_tiles * COLUMN_TILES) return false;
      const TilePlace place = tile_place(ordinal, token_tiles, in_bands);
      tile.first_row = place.token_tile * TOKENS;
      tile.column_tile = place.column_tile;
      tile.rows = params.m - tile.first_row;
      tile.take_split(0);
      return tile.column_tile < COLUMN_TILES;
    } else {
      tile.first_row = blockIdx.y * TOKENS;
      tile.rows = params.m - tile.first_row;
      tile.column_tile = blockIdx.x;
      tile.take_split(SPLITS * CLUSTER_SPLITS == 1 ? 0 : blockIdx.z);
      return index == 0;
    }
  }
};

}  // namespace ws
