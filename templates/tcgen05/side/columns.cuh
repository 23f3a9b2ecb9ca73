// Weights are the rows of the instruction: a thread has one column of C. Neighbouring lanes exchange what they have, so that each
// stores two columns of every other token.
#pragma once

#include "tcgen05/side/column.cuh"

namespace ws {

__device__ __forceinline__ float from_neighbour(float value) { return __shfl_xor_sync(~0u, value, 1); }

struct StoredTile : StoredColumn {
  const int even;  // of the two columns the even one

  __device__ StoredTile(const Params& params, const Tile& tile, int rank, int lane)
      : StoredColumn(params, tile, rank, lane), even(column & ~1) {}

  // Whole sums of 16 tokens.
  template <int COUNT>
  __device__ void store(int part, const float (&sums)[COUNT][16], const Alphas& alphas,
                        const HeldColumns<1>& columns) const {
#pragma unroll
    for (int i = 0; i < 16; i += 2) {
      float mine[2];
#pragma unroll
      for (int j = 0; j < 2; j++) mine[j] = combine_at(i + j, sums, alphas, columns.of[0]);
      const bool is_odd = column & 1;
      const float other = from_neighbour(is_odd ? mine[0] : mine[1]);
      const int token = part * 16 + i + is_odd, row = tile.first_row + token;
      if (token < tile.rows && even < N) {
        const float pair[2] = {Destination::scaled(params, row, is_odd ? other : mine[0]),
                               Destination::scaled(params, row, is_odd ? mine[1] : other)};
        const int to = Destination::row(params, row);
        if (Destination::is_there(params, to)) Output::store(params.c, static_cast<long long>(to) * N + even, pair);
      }
    }
  }
};

}  // namespace ws
