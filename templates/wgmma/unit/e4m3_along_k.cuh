// What makes true sums of those of e4m3 values whose tokens' factors have been applied along K (k_factors/).
#pragma once

#include "wgmma/unit/weights.cuh"

namespace ws {

struct alignas(8) Factors {
  WeightFactors weights;
  Alphas alphas;
};

}  // namespace ws

#include "wgmma/unit/factors.cuh"

namespace ws {

// Before a tile is multiplied, when all are done with the one before.
__device__ __forceinline__ void ask_for_factors(const Params& launch, const Ring& ring, const Tile& tile, const ConsumerId& consumer) {
  const u32 to = ring.base + factors_offset(consumer);
  ask_for_weight_factors(launch, tile, to);
  // Whoever loads tokens has waited; here nobody has.
  wait_for_dependencies();
  ask_for_alphas(launch, tile, to + sizeof(WeightFactors));
  cp_async_commit_group();
}

// Of COUNT products from `first_product` on, for the columns that a thread holds.
template <int COUNT>
struct Units {
  WeightUnits<COUNT> weights;

  __device__ Units(const Params&, const Tile&, const ConsumerId& consumer, int, int first_product)
      : weights(factors_of(consumer).weights, consumer, first_product) {}

  // Never contracted, so that all variants give the same bits.
  __device__ float applied(float sum, int product, int held, int, int) const { return __fmul_rn(sum, weights.of[held][product]); }
};

}  // namespace ws
