// What makes true sums of those of e4m3 values whose tokens' factors have been applied along K (k_factors/).
#pragma once

#include "wgmma/unit/weights.cuh"

namespace ws {

enum : bool { HAS_FACTORS = true };

struct alignas(8) Factors {
  WeightFactors weights;
  Alphas alphas;
};
static_assert(FACTORS_OFFSET + TILE_GROUPS * sizeof(Factors) <= SHARED_BYTES, "host and device agree");

// Of a tile group.
__device__ __forceinline__ int factors_offset(const ConsumerId& consumer) {
  return FACTORS_OFFSET + consumer.tile_group * int(sizeof(Factors));
}

// Before a tile is multiplied, when all are done with the one before.
__device__ __forceinline__ void ask_for_factors(const Params& launch, const Ring& ring, const Tile& tile, const ConsumerId& consumer) {
  const u32 to = ring.base + factors_offset(consumer);
  ask_for_weight_factors(launch, tile, to);
  // Whoever loads tokens has waited; here nobody has.
  wait_for_dependencies();
  ask_for_alphas(launch, tile, to + sizeof(WeightFactors));
  cp_async_commit_group();
}

// Before all threads of the tile meet behind which they are read.
__device__ __forceinline__ void wait_for_factors() { cp_async_wait_group<0>(); }

__device__ __forceinline__ const Factors& factors_of(const ConsumerId& consumer) {
  return *reinterpret_cast<const Factors*>(shared_memory + factors_offset(consumer));
}

// Of a tile's group: there when its other factors are.
struct TileAlphas {
  __device__ TileAlphas(const Params&, const Tile&) {}
  __device__ const Alphas& of(const ConsumerId& consumer) const { return factors_of(consumer).alphas; }
};

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
