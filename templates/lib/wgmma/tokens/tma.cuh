// Tokens in a 16-bit format: one thread loads the tile of a stage as one box of a tensor map.
#pragma once

namespace ws {

struct Tokens {
  static constexpr int WARPS = 1;
  // Where a tile may have fewer rows than TOKENS, boxes are so many rows of one K block, and those without rows are left
  // out.
  static constexpr int BOX_ROWS = 32;

  __device__ static int boxes(const Tile& tile) { return ceil_div(min(tile.rows, TOKENS), BOX_ROWS); }

  // Bytes of a stage that count at `full`: those of whole boxes, inside of A or not.
  __device__ static u32 bytes(const Tile& tile) {
    return RAGGED ? K_BLOCKS * boxes(tile) * (BOX_ROWS * 128) : TOKEN_BYTES;
  }

  // One stage, by one thread, when it is empty.
  __device__ static void copy(const TensorMap& map, const Ring& ring, u32 slot, const Tile& tile, int k_tile) {
    const u32 to = ring.stage(slot), full = ring.full(slot);
    if constexpr (RAGGED) {
      const int count = boxes(tile);
#pragma unroll
      for (int block = 0; block < K_BLOCKS; block++)
        for (int box = 0; box < count; box++)
          tensor_load(to + block * TOKENS * 128 + box * BOX_ROWS * 128, map, 0, tile.first_row + box * BOX_ROWS,
                      k_tile * K_BLOCKS + block, full);
    } else {
      tensor_load(to, map, 0, tile.first_row, k_tile * K_BLOCKS, full);
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
