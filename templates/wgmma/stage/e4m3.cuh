// A stage of a warpgroup's way along K, of weights that become e4m3: two steps of 32 a K block, and every two blocks the sums
// are promoted.
//
//   wait for all ─▶ promote what the two blocks before gave ─▶ multiply block 0, sums begin anew ─▶ decode block 1
//   multiply block 1 ─▶ load and decode the block behind      (the tensor core is at work meanwhile)
#pragma once

#include "wgmma/stage/e4m3_block.cuh"

namespace ws {

static_assert(K_BLOCKS % 2 == 0, "checked by Spec: a stage begins with sums that begin anew");

// A block's registers are read by the tensor core while the next block's are made.
using Fragments = u32[2][2][4];

// Before the first stage: its first block.
template <class Loop>
__device__ __forceinline__ void begin_stages(Loop& loop) {
  loop.wait_and_load();
  decode_block(loop.rows, loop.a[0]);
}

// A stage of BLOCKS K blocks, the first of which is in `loop.a`; leaves the first of the next stage there. That is decoded
// before the loop begins anew: in one piece with the wait for the block before, ptxas puts it behind that.
template <int BLOCKS, int WIDTH, class Loop>
__device__ __forceinline__ void multiply_stage(Loop& loop) {
  const u32 stage = loop.at.stage;
#pragma unroll
  for (int block = 0; block < BLOCKS; block++) {
    u32(&buffer)[2][4] = loop.a[block % 2];
    if (block > 0) decode_block(loop.rows, buffer);
    // A line of tokens is two K blocks.
    const u64 tokens = token_descriptor(stage + block / 2 * WIDTH * 128) + block % 2 * 2 * DESCRIPTOR_STEP;
    if (block % 2 == 0) {
      wgmma_wait_group<0>();
      loop.template promote<WIDTH>();
      if (block == 0 && !K_FACTORS) loop.release_held();
      multiply<WIDTH, true>(buffer, tokens);
      // Multiplying has brought the lanes together after they read factors there.
      if (block == 0 && K_FACTORS) loop.release_held();
      loop.follow(loop.ring, loop.at, block / 2);
    } else {
      multiply<WIDTH, false>(buffer, tokens);
    }
    if (block + 1 < BLOCKS) {
      loop.load(stage + loop.weights + (block + 1) * BLOCK_BYTES);
      // The other registers are free again. (Those of an even block's neighbour are: all was waited for.)
      if (block % 2 == 1) wgmma_wait_group<1>();
    } else {
      if (Loop::EAGER) {
        wgmma_wait_group<0>();
        Ring::release(loop.at.empty());
      }
      loop.inline_producer(loop.first_stage + loop.index);
      if (loop.template go_on<BLOCKS>()) {
        loop.wait_and_load();
        wgmma_wait_group<1>();  // only the last stage ends in the middle of a line
        decode_block(loop.rows, loop.a[0]);
      }
    }
  }
}

}  // namespace ws
