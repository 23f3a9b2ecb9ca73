// Registers → global memory. A lane holds, of every token that is its own, RUN consecutive columns, and the eight lanes
// of the same token hold 8·RUN: whole 32-byte sectors.
#pragma once

namespace ws {

// The first of the columns of the block that are the lane's.
__device__ __forceinline__ int run_column() { return warp_column() * WARP_COLUMNS + lane_row() * RUN; }

// Calls store(row, column, n8, token) for every run of columns inside C: `row` and `column` are C's, `n8` and `token`
// (0 or 1) say where its sums are: sums[n8][m16][2·half + token] is column 2·m16 + half of the run.
template <class Store>
__device__ __forceinline__ void for_each_run(const Block& block, Store store) {
  const int column = run_column();
  if (column >= block.columns) return;
#pragma unroll
  for (int n8 = 0; n8 < WARP_N8; n8++) {
#pragma unroll
    for (int token = 0; token < 2; token++) {
      const int row = warp_token() * WARP_TOKENS + n8 * 8 + 2 * lane_k() + token;
      if (row < block.rows) store(block.first_row + row, block.first_column + column, n8, token);
    }
  }
}

}  // namespace ws
