// The tiles of a block of an ungrouped problem. A block for each: x walks the tiles of columns, y those of tokens, z the
// splits of K; many are taken in bands. Persistent: as many blocks as run at once, each with several; tiles that follow each
// other have the same weights.
#pragma once

#include "common/groups/single.cuh"
#include "wgmma/schedule/bands.cuh"

namespace ws {

struct Schedule {
  __device__ explicit Schedule(const Params&, const Ring&) {}

  // The `index`th tile of this block; false behind the last.
  __device__ bool tile(const Params& params, int index, Tile& tile) const {
    if constexpr (PERSISTENT) {
      const int token_tiles = ceil_div(params.m, TOKENS), ordinal = blockIdx.x + index * gridDim.x;
      if constexpr (TOKENS < TALL) {
        take(params, {ordinal % token_tiles, ordinal / token_tiles}, tile);
        return tile.column_tile < COLUMN_TILES;
      }
      if (ordinal >= token_tiles * COLUMN_TILES) return false;
      take(params, in_bands(ordinal, token_tiles), tile);
      return true;
    } else {
      if constexpr (IN_BANDS)
        take(params, in_bands(blockIdx.y * gridDim.x + blockIdx.x, gridDim.y), tile);
      else
        take(params, {static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.x)}, tile);
      return index == 0;
    }
  }

 private:
  __device__ static void take(const Params& params, const TilePlace& place, Tile& tile) {
    tile.group = 0;
    tile.first_row = place.token_tile * TOKENS;
    tile.rows = params.m - tile.first_row;
    tile.column_tile = place.column_tile;
    tile.take_split(PERSISTENT || SPLITS * CLUSTER_SPLITS == 1 ? 0 : blockIdx.z);
  }
};

}  // namespace ws
