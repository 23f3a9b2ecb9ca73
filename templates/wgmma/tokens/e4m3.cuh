// Tokens in e4m3: one thread loads the tile of a stage, a box of a tensor map for each 128 of K, as high as the tile is wide to
// multiply, or as there are rows. Behind K they are zeros, which nobody multiplies.
#pragma once

namespace ws {

struct Tokens {
  static constexpr int WARPS = 1;

  // Bytes of a stage that count at `full`: those of whole boxes, inside of A or not.
  __device__ static u32 bytes(const Params& params, const Tile& tile) { return TILE_K * box_of(params, tile).rows; }

  // One stage, by one thread, when it is empty.
  __device__ static void copy(const Params& params, const TensorMaps& maps, const Place& place, const Tile& tile, int k_tile) {
    const TensorMap& map = maps.of[box_of(params, tile).map];
    const int line_bytes = width_of(tile).tokens * 128;
#pragma unroll
    for (int line = 0; line < TILE_K / LINE_K; line++)
      tensor_load_2d(place.stage + line * line_bytes, map, k_tile * TILE_K + line * LINE_K, tile.first_row, place.full);
  }

  // All stages of a tile, by one thread.
  __device__ static void load(const Params& params, const TensorMaps& maps, Producer& producer, const Tile& tile, int) {
    producer.fill<TOKEN_PACE>(tile, [&](const Place& place, int k_tile) { copy(params, maps, place, tile, k_tile); });
  }
};

}  // namespace ws
