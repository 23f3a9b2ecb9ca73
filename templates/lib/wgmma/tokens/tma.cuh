// Tokens in a 16-bit format: one thread loads the tile of a stage as one box of a tensor map, as high as the tile is wide
// to multiply.
#pragma once

namespace ws {

struct Tokens {
  static constexpr int WARPS = 1;

  // Bytes of a stage that count at `full`: those of a whole box, inside of A or not.
  __device__ static u32 bytes(const Tile& tile) { return K_BLOCKS * 128 * width_of(tile).tokens; }

  // One stage, by one thread, when it is empty.
  __device__ static void copy(const TensorMaps& maps, const Ring& ring, u32 slot, const Tile& tile, int k_tile) {
    const TensorMap& map = maps.of[width_of(tile).index];
    tensor_load(ring.stage(slot), map, 0, tile.first_row, k_tile * K_BLOCKS, ring.full(slot));
  }

  // All stages of a tile, by one thread.
  __device__ static void load(const Params&, const TensorMaps& maps, const Ring& ring, Cursor& at, const Tile& tile, int) {
    for_each_stage(tile, [&](int k_tile) {
      mbarrier_wait(ring.empty(at.slot), at.parity ^ 1);
      copy(maps, ring, at.slot, tile, k_tile);
      at.advance<1>();
    });
  }
};

}  // namespace ws
