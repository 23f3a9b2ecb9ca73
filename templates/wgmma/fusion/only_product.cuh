// The 64 rows of an m64 tile are of one product: nothing to fuse.
#pragma once

#include "wgmma/fusion/whole_rows.cuh"

namespace ws {

struct OnlyProduct : WholeRowsOfTile {
  static constexpr int HELD_COLUMNS = 2, PARTIAL_PRODUCTS = 1;

  // The first of eight columns, one for each lane / 4.
  __device__ static int column(const ConsumerId& consumer, int held) {
    return consumer.part * 64 + threadIdx.x / 32 % 4 * 16 + held * 8;
  }

  __device__ static float sum(const float (&sums)[COUNT][ACCUMULATORS], int, int held, int i) {
    return sums[0][i + 2 * held];
  }
};

}  // namespace ws
