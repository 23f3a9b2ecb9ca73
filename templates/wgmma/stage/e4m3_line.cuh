// A line of 128 of K, of weights that become e4m3: two K blocks, two steps each. The last of a tile may be one block.
#pragma once

#include "wgmma/stage/e4m3_block.cuh"

namespace ws {

using Line = u32[2][2][4];

// BLOCKS K blocks from `block` on, the first of which is in `loop.rows`.
template <int BLOCKS, class Loop>
__device__ __forceinline__ void decode_line(Loop& loop, Line& line, u32 block) {
#pragma unroll
  for (int i = 0; i < BLOCKS; i++) {
    if (i > 0) loop.load(block + i * BLOCK_BYTES);
    decode_block(loop.rows, line[i]);
  }
}

// The first line of the stage, whose first K block is loaded.
template <class Loop>
__device__ __forceinline__ void decode_first_line(Loop& loop, Line& line) {
  const u32 block = loop.at.stage + loop.weights;
  if constexpr (K_TAIL && LAST_BLOCKS == 1) {
    if (loop.tile.first_k_tile + loop.index == K_TILES - 1) {
      decode_line<1>(loop, line, block);
      return;
    }
  }
  decode_line<2>(loop, line, block);
}

// So many K blocks with WIDTH tokens, as one group whose sums begin anew.
template <int WIDTH>
__device__ __forceinline__ void multiply_blocks(int blocks, const Line& line, u64 tokens) {
  if (blocks == 1)
    multiply<WIDTH, true>(line[0], tokens);
  else
    multiply_line<WIDTH>(line, tokens);
}

}  // namespace ws
