// Tokens are the rows of the instruction: a thread has one row of C, and of it the columns of the tile, 16 at a time.
#pragma once

#include "common/output/vector.cuh"

namespace ws {

struct StoredTile {
  const Params& params;
  const Tile& tile;
  const int token, row;  // of the tile, and of the product

  __device__ StoredTile(const Params& params, const Tile& tile, int rank, int lane)
      : params(params), tile(tile), token(rank * ROWS + lane), row(tile.first_row + token) {}

  __device__ int parts() const { return min(COLUMNS, N - tile.first_column()) / 16; }
  __device__ int first(int part) const { return tile.first_column() + part * 16; }

  // Whole sums of 16 columns.
  template <int COUNT>
  __device__ void store(int part, const float (&sums)[COUNT][16], const Alphas& alphas,
                        const HeldColumns<16>& columns) const {
    if (token >= tile.rows) return;
    float result[16];
#pragma unroll
    for (int i = 0; i < 16; i++) result[i] = Destination::scaled(params, row, combine_at(i, sums, alphas, columns.of[i]));
    const int to = Destination::row(params, row);
    if (Destination::is_there(params, to)) store_columns<1>(params, tile.group, to, first(part), result);
  }

  // Partial sums of 16 columns.
  __device__ void store_partial(int part, int product, const float (&sums)[16]) const {
    if (token >= tile.rows) return;
    store_floats(reinterpret_cast<u8*>(partial_sum(params, tile.split, product, row, first(part))), sums);
  }

  // What columns have of their own.
  __device__ HeldColumns<16> columns(int part) const {
    return HeldColumns<16>(params, tile.group, [&](int i) { return first(part) + i; });
  }
};

}  // namespace ws
