// Block scales that begin anywhere, or lie in memory in another order: warps of their own copy the four scales of a row and 64
// of K, four bytes, each to its place.
#pragma once

namespace ws {

template <class Rows>
struct CopiedScales {
  static constexpr bool COPIES = true;
  using Share = Nothing;

  __device__ static u32 bytes(const Params&, const Tile&, int, int) { return 0; }
  __device__ static void prefetch(const Params&, const Maps&) {}
  __device__ static void load(const Params&, const Maps&, const Ring&, u32, const Tile&, int) {}
  __device__ static int column(const Tile&) { return 0; }

  // This thread's share of a stage. Rows that there are not have scales of zero.
  __device__ static void copy(const Params& params, const Ring& ring, u32 slot, const Tile& tile, int k_tile, Share) {
    constexpr int HEIGHT = Rows::TILE_BLOCKS * 128, WORDS = HEIGHT * K_BLOCKS;
    const int first = Rows::first(tile, ring.rank), rows = Rows::end(params, tile) - first, blocks = blocks_of(k_tile);
#pragma unroll
    for (int product = 0; product < Rows::TILES; product++) {
      const u8* from = Rows::scales(params, tile, product) + scale_begin(first);
      const u32 to = ring.stage(slot) + Rows::OFFSET + product * Rows::TILE_BLOCKS * SCALE_BLOCK_BYTES;
#pragma unroll 4
      for (int word = copy_thread(); word < WORDS; word += COPY_THREADS) {
        const int row = word / K_BLOCKS, block = word % K_BLOCKS;
        const bool is_there = row < rows && block < blocks;
        const int at = is_there ? scale_offset(scale_row(first) + row, k_tile * K_BLOCKS + block) : 0;
        cp_async_4(to + scale_place(row, block), from + at, is_there);
      }
    }
  }
};

}  // namespace ws
