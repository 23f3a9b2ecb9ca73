// A warpgroup multiplies all 64 rows of an m64 tile at once, whichever product they are of.
#pragma once

namespace ws {

struct WholeRowsOfTile {
  static constexpr int COUNT = 1;
  static_assert(TILES_PER_PART == 1 && PRODUCT_GROUPS == 1 && PASSES == 1, "host and device agree");

  template <class InlineProducer>
  __device__ static void multiply(float (&sums)[COUNT][ACCUMULATORS], const Params&, const Ring& ring, const ConsumerId& consumer,
                                  u32 stage, const Tile& tile, const InlineProducer& inline_producer) {
    main_loop<WholeRows>(sums[0], ring, consumer, stage, tile, inline_producer);
  }
};

}  // namespace ws
