// Weights are the rows of the instruction: a thread has one column of C, and of it the tokens of the tile, 16 at a time.
#pragma once

namespace ws {

struct StoredColumn {
  const Params& params;
  const Tile& tile;
  const int column;  // of C

  __device__ StoredColumn(const Params& params, const Tile& tile, int rank, int lane)
      : params(params), tile(tile), column(tile.first_column() + rank * ROWS + lane) {}

  __device__ int parts() const { return ceil_div(min(tile.rows, WIDTH), 16); }

  // Partial sums of 16 tokens.
  __device__ void store_partial(int part, int product, const float (&sums)[16]) const {
#pragma unroll
    for (int i = 0; i < 16; i++) {
      const int token = part * 16 + i;
      if (token < tile.rows && column < N) *partial_sum(params, tile.split, product, tile.first_row + token, column) = sums[i];
    }
  }

  // What columns have of their own.
  __device__ HeldColumns<1> columns(int) const {
    return HeldColumns<1>(params, tile.group, [&](int) { return column; });
  }
};

}  // namespace ws
