// A tile that a warp of its own stores (epilogue/apart.cuh): its sums are staged where their width is known. Were they brought together
// from all widths, ptxas would find no registers for more than three of these, and the widest's would be staged.
#pragma once

namespace ws {

struct Store {
  const Params& params;
  const Ring& ring;
  const Tile& tile;
  const ConsumerId& consumer;
  const TileAlphas& alphas;

  template <int WIDTH>
  __device__ __forceinline__ void finish() const {
    float sums[1][ACCUMULATORS];
    read_sums<WIDTH / TOKEN_PARTS>(sums[0]);
    wait_for_factors();
    if constexpr (HAS_FACTORS) group_sync(consumer);
    store_result<WIDTH / TOKEN_PARTS / 8>(params, ring, tile, consumer, held_token(tile, consumer), alphas.of(consumer), sums);
  }
};

}  // namespace ws
