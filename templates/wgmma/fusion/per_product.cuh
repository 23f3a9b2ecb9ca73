// One warpgroup for each product: both read the same stages, and the second hands its sums to the first.
#pragma once

#include "wgmma/fusion/one_product.cuh"

namespace ws {

struct Fusion : OneProduct {
  static constexpr int COUNT = 2, PARTIAL_PRODUCTS = 2;
  static_assert(PRODUCT_GROUPS == 2 && PASSES == 1, "host and device agree");

  template <class InlineProducer>
  __device__ static void multiply(float (&sums)[COUNT][ACCUMULATORS], const Params&, const Ring& ring, const ConsumerId& consumer,
                                  u32 stage, const Tile& tile, const InlineProducer& inline_producer) {
    if (consumer.product == 0)
      main_loop<ProductRows<0>>(sums[0], ring, consumer, stage, tile, inline_producer);
    else
      main_loop<ProductRows<1>>(sums[0], ring, consumer, stage, tile, inline_producer);

    constexpr int LANES = 128 * PARTS;
    static_assert(ACCUMULATORS * LANES * 4 <= SCRATCH_BYTES, "the sums fit");
    float* scratch = reinterpret_cast<float*>(shared_memory + scratch_offset(consumer));
    const int lane = threadIdx.x % 128 + 128 * consumer.part;
    group_sync(consumer);
    if (consumer.product == 1) {
#pragma unroll
      for (int i = 0; i < ACCUMULATORS; i++) scratch[i * LANES + lane] = sums[0][i];
    }
    group_sync(consumer);
#pragma unroll
    for (int i = 0; i < ACCUMULATORS; i++) sums[1][i] = scratch[i * LANES + lane];
    group_sync(consumer);
  }

  __device__ static float sum(const float (&sums)[COUNT][ACCUMULATORS], int product, int held, int i) {
    return sums[product][i + 2 * held];
  }
};

}  // namespace ws
