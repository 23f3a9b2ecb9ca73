// As interleaved, but two groups of warpgroups take every second tile each, in turn: one's epilogue is under the other's
// multiplying.
#pragma once

#include "wgmma/fusion/both_products.cuh"

namespace ws {

struct PingPong : BothProducts {
  static_assert(TILE_GROUPS == 2 && PERSISTENT, "host and device agree");

  // A group begins with the stages of tile `index` when the other is done with those of the tile before: until then a
  // stage's barrier may be whole phases behind, which a parity cannot tell.
  template <class InlineProducer>
  __device__ static void multiply(float (&sums)[COUNT][ACCUMULATORS], const Params& params, const Ring& ring,
                                  const ConsumerId& consumer, u32 stage, const Tile& tile, const InlineProducer& inline_producer) {
    const u32 index = stage / TILE_STAGES;
    if (index > 0) mbarrier_wait(ring.turn(consumer.tile_group), (index - 1) / 2 & 1);
    BothProducts::multiply(sums, params, ring, consumer, stage, tile, inline_producer);
    __syncwarp();
    if (lane_index() == 0) mbarrier_arrive(ring.turn(consumer.tile_group ^ 1));
  }
};

using Fusion = PingPong;

}  // namespace ws
