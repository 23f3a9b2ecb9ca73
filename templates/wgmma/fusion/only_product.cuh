// The 64 rows of an m64 tile are of one product: nothing to fuse.
#pragma once

namespace ws {

struct OnlyProduct {
  static constexpr int COUNT = 1, HELD_COLUMNS = 2, PARTIAL_PRODUCTS = 1;
  static_assert(TILES_PER_PART == 1 && PRODUCT_GROUPS == 1 && PASSES == 1, "host and device agree");

  template <class InlineProducer>
  __device__ static void multiply(float (&sums)[COUNT][ACCUMULATORS], const Params&, const Ring& ring, const ConsumerId& consumer,
                                  u32 stage, const Tile& tile, const InlineProducer& inline_producer) {
    main_loop<WholeRows>(sums[0], ring, consumer, stage, tile, inline_producer);
  }

  // The first of eight columns, one for each lane / 4.
  __device__ static int column(const ConsumerId& consumer, int held) {
    return consumer.part * 64 + threadIdx.x / 32 % 4 * 16 + held * 8;
  }

  __device__ static float sum(const float (&sums)[COUNT][ACCUMULATORS], int, int held, int i) {
    return sums[0][i + 2 * held];
  }
};

}  // namespace ws
