// What makes true sums of those of e4m3 values: a factor for each row of the weights, a power of two, and one for each token.
//
// A tile's come to shared memory while it is multiplied: at its end nobody waits for them, or works out where they are.
#pragma once

#include "wgmma/unit/weights.cuh"

namespace ws {

// Of two tile groups one lies behind the other, and tokens' are read by twos.
struct alignas(8) Factors {
  float tokens[TOKENS];
  WeightFactors weights;
  Alphas alphas;
};

}  // namespace ws

#include "wgmma/unit/factors.cuh"

namespace ws {

// Before a tile is multiplied, when all are done with the one before: asks for its factors.
__device__ __forceinline__ void ask_for_factors(const Params& launch, const Ring& ring, const Tile& tile, const ConsumerId& consumer) {
  const u32 to = ring.base + factors_offset(consumer);
  ask_for_weight_factors(launch, tile, to + TOKENS * sizeof(float));
  const float* of_tokens = reinterpret_cast<const float*>(launch.a_scales);
  // Whoever loads tokens has waited; here nobody has.
  wait_for_dependencies();
  ask_for_alphas(launch, tile, to + TOKENS * sizeof(float) + sizeof(WeightFactors));
#pragma unroll 1
  for (int token = threadIdx.x % GROUP_THREADS; token < TOKENS; token += GROUP_THREADS) {
    const int row = tile.first_row + min(token, tile.rows - 1);
    if constexpr (COPIED) {
      // One that is gathered may be none of A, and is zeros then.
      const MovedParams& params = static_cast<const MovedParams&>(launch);
      const int number = params.rows[row];
      const bool is_there = u32(number) < u32(params.a_rows);
      cp_async_4(to + token * sizeof(float), of_tokens + (is_there ? number : 0), is_there);
    } else {
      cp_async_4(to + token * sizeof(float), of_tokens + row, true);
    }
  }
  cp_async_commit_group();
}

// Of COUNT products from `first_product` on, for the columns and tokens that a thread holds.
template <int COUNT>
struct Units {
  WeightUnits<COUNT> weights;
  float2 tokens[HELD_N8];

  __device__ Units(const Params&, const Tile&, const ConsumerId& consumer, int first_token, int first_product)
      : Units(factors_of(consumer), consumer, first_token, first_product) {}

  __device__ Units(const Factors& factors, const ConsumerId& consumer, int first_token, int first_product)
      : weights(factors.weights, consumer, first_product) {
#pragma unroll
    for (int n8 = 0; n8 < HELD_N8; n8++)
      tokens[n8] = *reinterpret_cast<const float2*>(factors.tokens + first_token + 8 * n8 + lane_index() % 4 * 2);
  }

  // Never contracted, so that all variants give the same bits.
  __device__ float applied(float sum, int product, int held, int n8, int token) const {
    return __fmul_rn(__fmul_rn(sum, weights.of[held][product]), token == 0 ? tokens[n8].x : tokens[n8].y);
  }
};

}  // namespace ws
