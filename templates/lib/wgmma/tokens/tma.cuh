// Tokens in a 16-bit format: one thread loads the tile of a stage as one box of a tensor map.
#pragma once

namespace ws {

struct Tokens {
  static constexpr int WARPS = 1;
  static constexpr u32 BYTES = TOKEN_BYTES;  // that count at `full`

  // One stage, by one thread, when it is empty.
  __device__ static void copy(const TensorMap& map, const Ring& ring, u32 slot, const Tile& tile, int k_tile) {
    tensor_load(ring.stage(slot), map, 0, tile.first_row, k_tile * K_BLOCKS, ring.full(slot));
  }

  Cursor at = Cursor::at(0);

  __device__ explicit Tokens(int) {}

  // The next stage, by one thread.
  __device__ void load(const Params&, const TensorMap& map, const Ring& ring, const Tile& tile, int k_tile) {
    mbarrier_wait(ring.empty(at.slot), at.parity ^ 1);
    copy(map, ring, at.slot, tile, k_tile);
    at.advance<1>();
  }
};

}  // namespace ws
