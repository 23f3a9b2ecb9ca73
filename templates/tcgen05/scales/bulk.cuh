// Block scales that lie in memory as tcgen05.cp wants them, and begin with a block of 128 rows or in its middle: bulk copies by
// the lane that loads the codes.
#pragma once

namespace ws {

// The kernel's: of codes alone.
using Maps = OperandMaps;

template <class Rows>
struct LoadedScales {
  static constexpr bool COPIES = false;
  using Share = Nothing;

  // Blocks of 128 rows that there are.
  __device__ static int blocks(const Params& params, const Tile& tile, int rank) {
    const int first = Rows::first(tile, rank) / 128;
    return min(Rows::TILE_BLOCKS, ceil_div(Rows::end(params, tile), 128) - first);
  }
  __device__ static u32 bytes(const Params& params, const Tile& tile, int rank, int k_tile) {
    return max(blocks(params, tile, rank), 0) * Rows::TILES * blocks_of(k_tile) * 512;
  }
  __device__ static void prefetch(const Params&, const Maps&) {}
  __device__ static void load(const Params& params, const Maps&, const Ring& ring, u32 slot, const Tile& tile, int k_tile) {
    const int count = blocks(params, tile, ring.rank), first = Rows::first(tile, ring.rank) / 128;
#pragma unroll
    for (int product = 0; product < Rows::TILES; product++)
#pragma unroll
      for (int block = 0; block < Rows::TILE_BLOCKS; block++)
        if (block < count) {
          const u32 to = ring.stage(slot) + Rows::OFFSET + (product * Rows::TILE_BLOCKS + block) * SCALE_BLOCK_BYTES;
          const u8* from = Rows::scales(params, tile, product) + scale_begin((first + block) * 128);
          bulk_load(to, from + k_tile * SCALE_BLOCK_BYTES, blocks_of(k_tile) * 512, ring.full(slot));
        }
  }
  __device__ static int column(const Tile& tile) { return column_in_block<Rows>(tile); }
};

}  // namespace ws
