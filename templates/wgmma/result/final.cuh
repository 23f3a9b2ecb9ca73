// The block has whole sums: combine them, round, store C.
#pragma once

namespace ws {

// The `held`th column of C that a thread holds.
__device__ __forceinline__ int held_column(const Tile& tile, const ConsumerId& consumer, int held) {
  return tile.first_column() + Fusion::column(consumer, held) + lane_index() / 4;
}

// Before a tile is multiplied: what its columns have of their own comes from memory meanwhile.
__device__ __forceinline__ void prefetch_columns(const Params& params, const Tile& tile, const ConsumerId& consumer) {
#pragma unroll
  for (int held = 0; held < Fusion::HELD_COLUMNS; held++)
    Column::prefetch(params, tile.group, min(held_column(tile, consumer, held), N - 1));
}

// Of the first 8·N8 of the tokens that the thread holds.
template <int N8, class Sums>
__device__ __forceinline__ void store_result(const Params& params, const Ring& ring, const Tile& tile, const ConsumerId& consumer,
                                             int first_token, const Alphas& alphas, const Sums& sums) {
  const HeldColumns<Fusion::HELD_COLUMNS> columns(params, tile.group, [&](int held) { return held_column(tile, consumer, held); });
  const Units<PRODUCTS> units(params, tile, consumer, first_token, 0);
  store_tile<N8>(params, ring, tile, consumer, first_token, [&](int held, int n8, int token) {
    float products[PRODUCTS];
#pragma unroll
    for (int product = 0; product < PRODUCTS; product++)
      products[product] = units.applied(Fusion::sum(sums, product, held, 4 * n8 + token), product, held, n8, token);
    // Columns of the sums behind the tile's rows are stored nowhere.
    const int row = min(first_token + 8 * n8 + lane_index() % 4 * 2 + token, tile.rows - 1);
    return Destination::scaled(params, tile.first_row + row, combine(products, alphas, columns.of[held]));
  });
}

}  // namespace ws
