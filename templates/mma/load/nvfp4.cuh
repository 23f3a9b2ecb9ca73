// Rows of an NVFP4 operand: global → shared as they are, shared → fragments of 16-bit values.
//
// Shared memory holds, for each K block, ROWS × 32 bytes of codes, and behind all codes ROWS × 4 scales for each K block.
// Lane 4·g + c takes the 16 elements k = 16c … 16c+15 of its rows: one scale, 8 bytes of codes. Sixteen lanes (four
// rows of 32 bytes) read 128 consecutive bytes: no bank conflict.
#pragma once

#include "mma_sync/load/nvfp4.cuh"

namespace ws {

// A K block of all rows after the other.
template <int ROWS>
struct BlockByBlock {
  template <class Order>
  __device__ static int place(int row, int chunk) {
    return chunk / 2 * ROWS * 32 + Order::position(row) * 32 + chunk % 2 * 16;
  }
};

template <int ROWS, class Order>
struct Nvfp4Tile : Nvfp4Rows<ROWS, Order, BlockByBlock<ROWS>> {
  using Nvfp4Rows<ROWS, Order, BlockByBlock<ROWS>>::CODES;

  // Codes and scale of the 16 elements of quarter `quarter` of a K block of a row.
  struct Quarter {
    uint2 codes;
    u32 scale;

    __device__ Quarter(int offset, int k_block, int position, int quarter) {
      const u8* stage = shared_memory + offset;
      codes = *reinterpret_cast<const uint2*>(stage + k_block * ROWS * 32 + position * 32 + quarter * 8);
      scale = e4m3_pair(stage[CODES + k_block * ROWS * 4 + position * 4 + quarter]);
    }

    // Eight of them, in four pairs along k: the first eight for half 0, the others for half 1.
    template <int HALF>
    __device__ void decode(u32 (&pairs)[4]) const {
      e2m1x8(HALF == 0 ? codes.x : codes.y, scale, pairs);
    }
  };

  // Half of this lane's quarter of a row.
  template <int HALF>
  __device__ static void fragment(u32 (&pairs)[4], int offset, int k_block, int position) {
    Quarter(offset, k_block, position, lane_k()).template decode<HALF>(pairs);
  }
};

}  // namespace ws
