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
  __device__ static void copy(const TensorMaps& maps, const Ring& ring, u32 slot, const Tile& tile, int k_tile) {
    constexpr u16 ALL = (1 << MULTICAST) - 1;
    const TensorMap& map = maps.of[0];
    const int rank = cluster_rank();
    if constexpr (K_BLOCKS == 1) {
      tensor_load_multicast(ring.stage(slot) + rank * ROWS * 128, map, 0, tile.first_row + rank * ROWS, k_tile,
                            ring.full(slot), ALL);
    } else {
      const int first = rank * (K_BLOCKS / MULTICAST);
      tensor_load_multicast(ring.stage(slot) + first * TOKENS * 128, map, 0, tile.first_row, k_tile * K_BLOCKS + first,
                            ring.full(slot), ALL);
    }
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
