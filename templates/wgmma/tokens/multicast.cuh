// Tokens in a 16-bit format, for the MULTICAST blocks of a cluster, which have the same tokens and other weights: each
// loads a part of the rows and sends it to all.
#pragma once

namespace ws {

struct Tokens {
  static constexpr int WARPS = 1;
  static constexpr int ROWS = TOKENS / MULTICAST;
  static_assert(K_BLOCKS == 1 || K_BLOCKS % MULTICAST == 0, "a part is one box");

  __device__ static u32 bytes(const Tile&) { return TOKEN_BYTES; }

  // One stage, by one thread, when it is empty in all blocks.
  __device__ static void copy(const TensorMaps& maps, const Place& place, const Tile& tile, int k_tile) {
    constexpr u16 ALL = (1 << MULTICAST) - 1;
    const TensorMap& map = maps.of[0];
    const int rank = cluster_rank();
    if constexpr (K_BLOCKS == 1) {
      tensor_load_multicast(place.stage + rank * ROWS * 128, map, 0, tile.first_row + rank * ROWS, k_tile,
                            place.full, ALL);
    } else {
      const int first = rank * (K_BLOCKS / MULTICAST);
      tensor_load_multicast(place.stage + first * TOKENS * 128, map, 0, tile.first_row, k_tile * K_BLOCKS + first,
                            place.full, ALL);
    }
  }

  // All stages of a tile, by one thread.
  __device__ static void load(const Params&, const TensorMaps& maps, Producer& producer, const Tile& tile, int) {
    producer.fill<TOKEN_PACE>(tile, [&](const Place& place, int k_tile) { copy(maps, place, tile, k_tile); });
  }
};

}  // namespace ws
