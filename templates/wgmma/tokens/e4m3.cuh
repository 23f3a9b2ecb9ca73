// Tokens in e4m3: one thread loads the tile of a stage, a box of a tensor map for each 128 of K, as high as the tile is wide to
// multiply, or as there are rows. Behind K they are zeros, which nobody multiplies.
#pragma once

namespace ws {

struct Tokens {
  static constexpr int WARPS = 1;

  // Bytes of a stage that count at `full`: those of whole boxes, inside of A or not.
  __device__ static u32 bytes(const Tile& tile) { return TILE_K * box_of(tile).rows; }

  __device__ static void copy_lines(const TensorMap& map, const Place& place, const Tile& tile, int k_tile) {
    // Else who loads weights announces these, too.
    if constexpr (DECODERS > 0) mbarrier_arrive_expect_tx(place.full, bytes(tile));
    const int line_bytes = width_of(tile).tokens * 128;
#pragma unroll
    for (int line = 0; line < TILE_K / LINE_K; line++)
      tensor_load_2d(place.stage + line * line_bytes, map, k_tile * TILE_K + line * LINE_K, tile.first_row, place.full);
  }

  // One stage, by one thread, when it is empty.
  __device__ static void copy(const TensorMaps& maps, const Place& place, const Tile& tile, int k_tile) {
    copy_lines(maps.of[box_of(tile).map], place, tile, k_tile);
  }

  // All stages of a tile, by one thread; by a warp, if factors come with them.
  __device__ static void load(const Params& params, const TensorMaps& maps, Producer& producer, const Tile& tile, int) {
    const TensorMap& map = maps.of[box_of(tile).map];
    if constexpr (K_FACTORS) {
      const FactorShare<32> factors(params, tile, lane_index());
      producer.fill<TOKEN_PACE>(tile, [&](const Place& place, int k_tile) {
        if (elect_one()) copy_lines(map, place, tile, k_tile);
        factors.ask(place, k_tile);
        cp_async_arrive(place.full);
      });
    } else {
      producer.fill<TOKEN_PACE>(tile, [&](const Place& place, int k_tile) { copy_lines(map, place, tile, k_tile); });
    }
  }
};

}  // namespace ws
