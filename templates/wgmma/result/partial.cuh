// The block has partial sums: store them in fp32 for the elementwise kernel.
#pragma once

namespace ws {

// Columns have nothing of their own here.
__device__ __forceinline__ void prefetch_columns(const Params&, const Tile&, const ConsumerId&) {}

template <int N8, class Sums>
__device__ __forceinline__ void store_result(const Params& params, const Ring&, const Tile& tile, const ConsumerId& consumer,
                                             int first_token, const Alphas&, const Sums& sums) {
  if (consumer.k_group != 0 || consumer.product != 0) return;
  const Units<Fusion::PARTIAL_PRODUCTS> units(params, tile, consumer, first_token,
                                              Fusion::PARTIAL_PRODUCTS < PRODUCTS ? params.product : 0);
  const int lane = lane_index(), columns = tile.columns();
#pragma unroll
  for (int held = 0; held < Fusion::HELD_COLUMNS; held++) {
    const int column = Fusion::column(consumer, held);
    if (column >= columns) continue;
#pragma unroll
    for (int which = 0; which < Fusion::PARTIAL_PRODUCTS; which++) {
      const int product = Fusion::PARTIAL_PRODUCTS < PRODUCTS ? params.product : which;
#pragma unroll
      for (int n8 = 0; n8 < N8; n8++)
#pragma unroll
        for (int token = 0; token < 2; token++) {
          const int row = first_token + 8 * n8 + lane % 4 * 2 + token;
          if (row < tile.rows)
            *partial_sum(params, tile.split, product, tile.first_row + row, tile.first_column() + column + lane / 4) =
                units.applied(Fusion::sum(sums, which, held, 4 * n8 + token), which, held, n8, token);
        }
    }
  }
}

}  // namespace ws
