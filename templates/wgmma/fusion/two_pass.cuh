// Two launches, one product each; the elementwise kernel combines them.
#pragma once

#include "wgmma/fusion/one_product.cuh"

namespace ws {

struct Fusion : OneProduct {
  static constexpr int COUNT = 1, PARTIAL_PRODUCTS = 1;
  static_assert(PRODUCT_GROUPS == 1 && PASSES == 1, "host and device agree");

  template <class Refill>
  __device__ static void multiply(float (&sums)[COUNT][ACCUMULATORS], const Params& params, const Ring& ring,
                                  const Role& role, u32 stage, const Tile& tile, const Refill& refill) {
    if (params.product == 0)
      along_k<ProductRows<0>>(sums[0], ring, role, stage, tile, refill);
    else
      along_k<ProductRows<1>>(sums[0], ring, role, stage, tile, refill);
  }

  __device__ static float sum(const float (&sums)[COUNT][ACCUMULATORS], int, int held, int i) {
    return sums[0][i + 2 * held];
  }
};

}  // namespace ws
