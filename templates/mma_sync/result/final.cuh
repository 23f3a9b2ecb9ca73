// The block has whole sums: combine them, round, store C.
#pragma once

namespace ws {

template <class Fusion>
__device__ __forceinline__ void store_result(const Params& params, const Block& block, const Fusion& fusion) {
  static_assert(Fusion::COUNT == PRODUCTS && SPLITS == 1, "whole sums of every product");
  const Alphas alphas(params, block.group);
  const HeldColumns<RUN> columns(params, block.group, [&](int i) { return block.first_column + run_column() + i; });
  for_each_run(block, [&](int row, int column, int n8, int token) {
    float run[RUN];
#pragma unroll
    for (int i = 0; i < RUN; i++) {
      float products[PRODUCTS];
#pragma unroll
      for (int product = 0; product < PRODUCTS; product++)
        products[product] = fusion.sums[product][n8][i / 2][2 * (i % 2) + token];
      run[i] = Destination::scaled(params, row, combine(products, alphas, columns.of[i]));
    }
    const int to = Destination::row(params, row);
    if (Destination::is_there(params, to)) store_columns<4>(params, block.group, to, column, run);
  });
}

}  // namespace ws
