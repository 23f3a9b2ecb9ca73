// All of the gate along K, then all of up, in one unbroken pipeline; tokens and weights are loaded twice.
#pragma once

#include "wgmma/fusion/one_product.cuh"

namespace ws {

struct Fusion : OneProduct {
  static constexpr int COUNT = 2, PARTIAL_PRODUCTS = 2;
  static_assert(PRODUCT_GROUPS == 1 && PASSES == 2, "host and device agree");

  template <class InlineProducer>
  __device__ static void multiply(float (&sums)[COUNT][ACCUMULATORS], const Params&, const Ring& ring, const ConsumerId& consumer,
                                  u32 stage, const Tile& tile, const InlineProducer& inline_producer) {
    main_loop<ProductRows<0>>(sums[0], ring, consumer, stage, tile, inline_producer);
    // The next stage of a K group may be so far ahead that its barrier is still in the phase before the last.
    if constexpr (K_GROUPS > 1) group_sync(consumer);
    main_loop<ProductRows<1>>(sums[1], ring, consumer, stage + tile.k_tiles, tile, inline_producer);
  }

  __device__ static float sum(const float (&sums)[COUNT][ACCUMULATORS], int product, int held, int i) {
    return sums[product][i + 2 * held];
  }
};

}  // namespace ws
