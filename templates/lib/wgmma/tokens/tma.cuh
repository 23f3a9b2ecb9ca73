// Tokens in a 16-bit format: one thread loads the tile of a stage as one box of a tensor map.
#pragma once

namespace ws {

struct Tokens {
  static constexpr int WARPS = 1;
  static constexpr int ARRIVALS = 0;            // at `full`, beside that of the weights
  static constexpr u32 BYTES = TOKEN_BYTES;     // that count at `full`

  // One stage, by one thread.
  __device__ static void load(const TensorMap& map, const Ring& ring, u32 slot, const Tile& tile, int k_tile) {
    tensor_load(ring.stage(slot), map, 0, tile.first_row, k_tile * K_BLOCKS, ring.full(slot));
  }
};

}  // namespace ws
