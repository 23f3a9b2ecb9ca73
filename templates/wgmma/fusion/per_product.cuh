// One warpgroup for each product: both read the same stages, and the second hands its sums to the first.
#pragma once

#include "wgmma/fusion/one_product.cuh"

namespace ws {

struct Fusion : OneProduct {
  static constexpr int COUNT = 2, PARTIAL_PRODUCTS = 2;
  static_assert(PRODUCT_GROUPS == 2 && PASSES == 1, "host and device agree");

  template <class Refill>
  __device__ static void multiply(float (&sums)[COUNT][ACCUMULATORS], const Params&, const Ring& ring, const Role& role,
                                  u32 stage, const Tile& tile, const Refill& refill) {
    if (role.product == 0)
      along_k<ProductRows<0>>(sums[0], ring, role, stage, tile, refill);
    else
      along_k<ProductRows<1>>(sums[0], ring, role, stage, tile, refill);

    constexpr int LANES = 128 * PARTS;
    static_assert(ACCUMULATORS * LANES * 4 <= SCRATCH_BYTES, "the sums fit");
    float* scratch = reinterpret_cast<float*>(shared_memory + scratch_offset(role));
    const int lane = threadIdx.x % 128 + 128 * role.part;
    group_sync(role);
    if (role.product == 1) {
#pragma unroll
      for (int i = 0; i < ACCUMULATORS; i++) scratch[i * LANES + lane] = sums[0][i];
    }
    group_sync(role);
#pragma unroll
    for (int i = 0; i < ACCUMULATORS; i++) sums[1][i] = scratch[i * LANES + lane];
    group_sync(role);
  }

  __device__ static float sum(const float (&sums)[COUNT][ACCUMULATORS], int product, int held, int i) {
    return sums[product][i + 2 * held];
  }
};

}  // namespace ws
