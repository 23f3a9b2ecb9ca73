// What makes true sums of those of e4m3 values: a factor for each row of the weights, a power of two, and one for each token.
#pragma once

namespace ws {

// Of COUNT products from `first_product` on, for the columns and tokens that a thread holds.
template <int COUNT>
struct Units {
  float weights[Fusion::HELD_COLUMNS][COUNT];
  float tokens[HELD_N8][2];

  __device__ Units(const Params& params, const Tile& tile, const ConsumerId& consumer, int first_token, int first_product) {
    // [groups, products, N], behind the blocks of all groups. They lie in the order of columns, not of tiles.
    const float* of_group = reinterpret_cast<const float*>(weight_block(params, static_cast<long long>(GROUPS) * TILES_PER_GROUP, 0)) +
                            static_cast<long long>(tile.group) * PRODUCTS * N;
#pragma unroll
    for (int held = 0; held < Fusion::HELD_COLUMNS; held++) {
      const int column = min(tile.first_column() + Fusion::column(consumer, held) + lane_index() / 4, N - 1);
#pragma unroll
      for (int i = 0; i < COUNT; i++) weights[held][i] = of_group[(first_product + i) * N + column];
    }
    // Whoever loads tokens has waited; here nobody has.
    wait_for_dependencies();
#pragma unroll
    for (int n8 = 0; n8 < HELD_N8; n8++)
#pragma unroll
      for (int token = 0; token < 2; token++)
        tokens[n8][token] =
            token_factor(params, tile.first_row + min(first_token + 8 * n8 + lane_index() % 4 * 2 + token, tile.rows - 1));
  }

  // Of a row of the product. One that is gathered may be none of A, and is zeros then.
  __device__ static float token_factor(const Params& launch, int row) {
    const float* factors = reinterpret_cast<const float*>(launch.a_scales);
    if constexpr (COPIED) {
      const MovedParams& params = static_cast<const MovedParams&>(launch);
      const int number = params.rows[row];
      return u32(number) < u32(params.a_rows) ? factors[number] : 1.f;
    }
    return factors[row];
  }

  // Never contracted, so that all variants give the same bits.
  __device__ float applied(float sum, int product, int held, int n8, int token) const {
    return __fmul_rn(__fmul_rn(sum, weights[held][product]), tokens[n8][token]);
  }
};

}  // namespace ws
