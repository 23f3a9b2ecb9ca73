// Weights are the rows of the instruction, and C has blocks of 16 columns: 16 neighbouring lanes, each with its column of 16
// tokens, exchange what they have until each has the 16 columns of one token.
#pragma once

#include "tcgen05/side/column.cuh"

namespace ws {

// Of the 16 lanes, value `i` of lane `l` becomes value `l` of lane `i`: in halves, quarters and so on.
__device__ __forceinline__ void transpose_16(float (&values)[16]) {
#pragma unroll
  for (int distance = 8; distance > 0; distance /= 2) {
    const bool is_upper = threadIdx.x & distance;
#pragma unroll
    for (int i = 0; i < 16; i++) {
      if (i & distance) continue;
      float &low = values[i], &high = values[i | distance];
      const float other = __shfl_xor_sync(~0u, is_upper ? low : high, distance);
      (is_upper ? low : high) = other;
    }
  }
}

struct StoredTile : StoredColumn {
  using StoredColumn::StoredColumn;

  // Whole sums of 16 tokens.
  template <int COUNT>
  __device__ void store(int part, const float (&sums)[COUNT][16], const Alphas& alphas,
                        const HeldColumns<1>& columns) const {
    float mine[16];
#pragma unroll
    for (int i = 0; i < 16; i++) mine[i] = combine_at(i, sums, alphas, columns.of[0]);
    transpose_16(mine);
    const int token = part * 16 + column % 16, row = tile.first_row + token, first = column & ~15;
    if (token >= tile.rows || first >= N) return;
#pragma unroll
    for (float& value : mine) value = Destination::scaled(params, row, value);
    const int to = Destination::row(params, row);
    if (Destination::is_there(params, to)) store_columns<1>(params, tile.group, to, first, mine);
  }
};

}  // namespace ws
