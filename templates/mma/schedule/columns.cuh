// What y and z of the grid stand for, with and without groups: a tile of columns and a part of K.
#pragma once

namespace ws {

__device__ __forceinline__ void schedule_columns(Block& block) {
  constexpr int PER_SPLIT = ceil_div(K_TILES, SPLITS);
  block.first_column = blockIdx.y * COLUMNS;
  block.columns = N - block.first_column;
  block.split = SPLITS == 1 ? 0 : blockIdx.z;  // a constant where it can be one: registers are scarce
  block.first_k_tile = block.split * PER_SPLIT;
  block.k_tiles = min(PER_SPLIT, K_TILES - block.first_k_tile);
}

}  // namespace ws
