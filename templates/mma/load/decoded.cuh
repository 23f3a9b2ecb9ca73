// Rows of an NVFP4 operand that all warps read: decoded once a stage, in shared memory, instead of by every warp for
// itself.
//
// A stage holds codes and scales as they come; behind all stages lies one tile of 16-bit values, in the form of HalfTile.
//
//   stage ready │ every thread decodes its share of it │ all see it │ multiply │ (the pipeline's barrier) │ next stage
#pragma once

#include "mma/load/half.cuh"
#include "mma/load/nvfp4.cuh"

namespace ws {

template <int ROWS, class Order>
struct DecodedTile {
  using Coded = Nvfp4Tile<ROWS, Order>;
  using Values = HalfTile<ROWS, Order>;
  static constexpr int BYTES = Coded::BYTES;
  static constexpr int VALUES = STAGES * STAGE_BYTES;

  __device__ static Rows tokens(const Params& params, int first, int count) { return Coded::tokens(params, first, count); }

  __device__ static void load(int offset, const Rows& rows, int k_tile) { Coded::load(offset, rows, k_tile); }

  // Decodes the stage's rows; returns where fragments of them are.
  __device__ static int ready(int offset) {
    for_each_row<ROWS, TILE_K / 16>([&](int row, int part) {
      const int k_block = part / 4, quarter = part % 4, position = Order::position(row);
      const typename Coded::Quarter coded(offset, k_block, position, quarter);
      u32 first[4], second[4];
      coded.template decode<0>(first);
      coded.template decode<1>(second);
      Values::store(first, VALUES, k_block, position, 2 * quarter);
      Values::store(second, VALUES, k_block, position, 2 * quarter + 1);
    });
    __syncthreads();
    return VALUES;
  }

  template <int HALF>
  __device__ static void fragment(u32 (&pairs)[4], int offset, int k_block, int position) {
    Values::template fragment<HALF>(pairs, offset, k_block, position);
  }
};

}  // namespace ws
