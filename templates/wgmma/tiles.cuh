// The tiles of a block one after the other, and the stages of a tile.
#pragma once

namespace ws {

// Calls body(tile, stage) for every STEPth tile of this block from `first` on; `stage` counts all stages before it.
template <int STEP, class Body>
__device__ __forceinline__ void for_each_tile(const Params& params, const Schedule& schedule, int first, Body body) {
  Tile tile;
  if constexpr (PERSISTENT) {
#pragma unroll 1
    for (int index = first; schedule.tile(params, index, tile); index += STEP) body(tile, u32(index) * TILE_STAGES);
  } else {
    if (schedule.tile(params, 0, tile)) body(tile, 0u);
  }
}

// Calls body(k_tile) for every stage of a tile.
template <class Body>
__device__ __forceinline__ void for_each_stage(const Tile& tile, Body body) {
#pragma unroll 1
  for (int pass = 0; pass < PASSES; pass++) {
#pragma unroll 1
    for (int k_tile = tile.first_k_tile; k_tile < tile.first_k_tile + tile.k_tiles; k_tile++) body(k_tile);
  }
}

}  // namespace ws
