// An m64 tile holds 32 rows of the gate and the same 32 of up: one multiplication gives both products of 32 columns, and
// a thread both of the same element.
#pragma once

#include "wgmma/fusion/whole_rows.cuh"

namespace ws {

struct BothProducts : WholeRowsOfTile {
  static constexpr int HELD_COLUMNS = 1, PARTIAL_PRODUCTS = 2;

  // The first of eight columns, one for each lane / 4.
  __device__ static int column(const ConsumerId& consumer, int) { return consumer.part * 32 + threadIdx.x / 32 % 4 * 8; }

  __device__ static float sum(const float (&sums)[COUNT][ACCUMULATORS], int product, int, int i) {
    return sums[0][i + 2 * product];
  }
};

}  // namespace ws
