// Rows of A by their numbers: as Nvfp4Tile, but each is looked up.
#pragma once

#include "mma_sync/load/gathered_nvfp4.cuh"
#include "mxf4/load/nvfp4.cuh"

namespace ws {

template <int ROWS, class Order>
struct GatheredTile : Nvfp4Tile<ROWS, Order> {
  __device__ static GatheredRows tokens(const Params& params, int first, int count) {
    return GatheredRows::of(params, first, count);
  }

  __device__ static void load(int offset, const GatheredRows& rows, int k_tile) {
    GatheredNvfp4<Nvfp4Tile<ROWS, Order>>::load(offset, rows, k_tile);
  }
};

}  // namespace ws
