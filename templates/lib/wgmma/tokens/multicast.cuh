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
  __device__ static void copy(const TensorMap& map, const Ring& ring, u32 slot, const Tile& tile, int k_tile) {
    constexpr u16 ALL = (1 << MULTICAST) - 1;
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
