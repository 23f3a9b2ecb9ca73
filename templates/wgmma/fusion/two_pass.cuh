// Two launches, one product each; the elementwise kernel combines them.
#pragma once

#include "wgmma/fusion/one_product.cuh"

namespace ws {

struct Fusion : OneProduct {
  static constexpr int COUNT = 1, PARTIAL_PRODUCTS = 1;
  static_assert(PRODUCT_GROUPS == 1 && PASSES == 1, "host and device agree");

  template <class InlineProducer>
  __device__ static void multiply(float (&sums)[COUNT][ACCUMULATORS], const Params& params, const Ring& ring,
                                  const ConsumerId& consumer, u32 stage, const Tile& tile, const InlineProducer& inline_producer) {
    if (params.product == 0)
      main_loop<ProductRows<0>>(sums[0], ring, consumer, stage, tile, inline_producer);
    else
      main_loop<ProductRows<1>>(sums[0], ring, consumer, stage, tile, inline_producer);
  }

  __device__ static float sum(const float (&sums)[COUNT][ACCUMULATORS], int, int held, int i) {
    return sums[0][i + 2 * held];
  }
};

}  // namespace ws
