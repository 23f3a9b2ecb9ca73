// Tokens in a 16-bit format: one thread loads the tile of a stage as one box of a tensor map, as high as the tile is wide
// to multiply.
#pragma once

namespace ws {

struct Tokens {
  static constexpr int WARPS = 1;

  // Bytes of a stage that count at `full`: those of a whole box, inside of A or not.
  __device__ static u32 bytes(const Tile& tile) { return K_BLOCKS * 128 * width_of(tile).tokens; }

  // One stage, by one thread, when it is empty.
  __device__ static void copy(const TensorMaps& maps, const Place& place, const Tile& tile, int k_tile) {
    const TensorMap& map = maps.of[width_of(tile).index];
    tensor_load(place.stage, map, 0, tile.first_row, k_tile * K_BLOCKS, place.full);
  }

  // All stages of a tile, by one thread.
  __device__ static void load(const Params&, const TensorMaps& maps, Producer& producer, const Tile& tile, int) {
    producer.fill<TOKEN_PACE>(tile, [&](const Place& place, int k_tile) { copy(maps, place, tile, k_tile); });
  }
};

}  // namespace ws
