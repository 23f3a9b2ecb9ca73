// An m64 tile holds 32 rows of the gate and the same 32 of up: one multiplication gives both products of 32 columns, and
// a thread both of the same element.
#pragma once

namespace ws {

struct BothProducts {
  static constexpr int COUNT = 1, HELD_COLUMNS = 1, PARTIAL_PRODUCTS = 2;
  static_assert(TILES_PER_PART == 1 && PRODUCT_GROUPS == 1 && PASSES == 1, "host and device agree");

  template <class InlineProducer>
  __device__ static void multiply(float (&sums)[COUNT][ACCUMULATORS], const Params&, const Ring& ring, const ConsumerId& consumer,
                                  u32 stage, const Tile& tile, const InlineProducer& inline_producer) {
    main_loop<WholeRows>(sums[0], ring, consumer, stage, tile, inline_producer);
  }

  // The first of eight columns, one for each lane / 4.
  __device__ static int column(const ConsumerId& consumer, int) { return consumer.part * 32 + threadIdx.x / 32 % 4 * 8; }

  __device__ static float sum(const float (&sums)[COUNT][ACCUMULATORS], int product, int, int i) {
    return sums[0][i + 2 * product];
  }
};

}  // namespace ws
