// Rows of an MXFP4 operand: as Nvfp4Tile, but a row has a scale for 32 elements, [rows, K/32]: two for each K block.
//
// cp.async copies four bytes at a multiple of four, which are the scales of two K blocks that follow each other in memory.
// So each K block of a row comes with its neighbour's, in front of its own or behind: a row's blocks take turns, and where
// it has an odd number of them, rows do. What a tile along K begins with is kept in the lowest bit of its offset. An
// operand has a multiple of 16 rows: no word lies across its end.
#pragma once

#include "mma/load/nvfp4.cuh"

namespace ws {

template <int ROWS, class Order>
struct Mxfp4Tile : Nvfp4Tile<ROWS, Order> {
  using Base = Nvfp4Tile<ROWS, Order>;
  using Base::CODES;

  // The weights of a group: `count` rows from `first` on.
  __device__ static Rows rows_of_group(const u8* values, const u8* scales, int group, int first, int count) {
    const long long row = group * static_cast<long long>(N) + first;
    return {values + row * (K / 2), scales + row * (K / 32), 0, count};
  }

  // Starts copying tile `k_tile` along K, as Nvfp4Tile does.
  __device__ static void load(int offset, const Rows& rows, int k_tile) {
    Base::load_codes(offset, rows, k_tile);
    Base::load_scales(offset, rows, k_tile, [](int row, int k_block) { return (row * (K / 64) + k_block) / 2 * 4; });
  }

  // With whether it begins with a second K block of two. A tile of several begins with a first.
  __device__ static int loaded(int offset, int k_tile) { return K_BLOCKS == 1 ? offset | k_tile % 2 : offset; }

  // Half of this lane's quarter of a row.
  template <int HALF>
  __device__ static void fragment(u32 (&pairs)[4], int tile, int k_block, int position) {
    static_assert(RUN % 2 == 0, "FragmentOrder keeps whether a row is an odd one in bit 3 of its position");
    const int offset = K_BLOCKS == 1 ? tile & ~1 : tile;
    const int before = (K_BLOCKS == 1 ? tile : k_block) + (K / 64 % 2 == 0 ? 0 : position / 8);
    const u8* scales = shared_memory + offset + CODES + k_block * ROWS * 4 + position * 4 + before % 2 * 2;
    typename Base::Quarter quarter(offset, k_block, position, lane_k());
    quarter.scale = e8m0_pair(scales[lane_k() / 2]);
    quarter.template decode<HALF>(pairs);
  }
};

}  // namespace ws
