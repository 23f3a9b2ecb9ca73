// A stage of a warpgroup's way along K, of weights that become e4m3, a line of 128 of K at a time.
//
//   wait for all ─▶ promote what the line before gave ─▶ multiply, sums begin anew ─▶ load and decode the line behind
//
// So the tensor core has 128 of K to work at while the next 128 are decoded, and a line is waited for once. It takes two lines'
// registers: one's are read by the tensor core while the other's are made.
#pragma once

#include "wgmma/stage/e4m3_line.cuh"

namespace ws {

static_assert(K_BLOCKS == 4, "host and device agree: a stage is two lines, so that each has its registers");

using Fragments = Line[2];

// Before the first stage: its first line.
template <class Loop>
__device__ __forceinline__ void begin_stages(Loop& loop) {
  loop.wait_and_load();
  decode_first_line(loop, loop.a[0]);
}

// A stage of BLOCKS K blocks, the first line of which is in `loop.a`; leaves the first of the next stage there.
template <int BLOCKS, int WIDTH, class Loop>
__device__ __forceinline__ void multiply_stage(Loop& loop) {
  constexpr int LINES = ceil_div(BLOCKS, 2);
  const u32 stage = loop.at.stage;
#pragma unroll
  for (int line = 0; line < LINES; line++) {
    wgmma_wait_group<0>();
    loop.template promote<WIDTH>();
    if (line == 0 && !K_FACTORS) loop.release_held();
    const u64 tokens = token_descriptor(stage + line * WIDTH * 128);
    multiply_blocks<WIDTH>(BLOCKS - 2 * line, loop.a[line], tokens);
    // Multiplying has brought the lanes together after they read factors there.
    if (line == 0 && K_FACTORS) loop.release_held();
    loop.follow(loop.ring, loop.at, line);
    if (line + 1 < LINES) {
      // Never, but branches. In one piece ptxas starts the last instruction behind the decoding, and decodes behind the wait
      // for the line before.
      if (loop.at.full == 0) return;
      const u32 block = stage + loop.weights + 2 * BLOCK_BYTES;
      loop.load(block);
      decode_line<(BLOCKS == 3 ? 1 : 2)>(loop, loop.a[1], block);
      if (loop.at.parity > 1) return;
    } else {
      if (Loop::EAGER) {
        wgmma_wait_group<0>();
        Ring::release(loop.at.empty());
      }
      loop.inline_producer(loop.first_stage + loop.index);
      if (loop.template go_on<BLOCKS>()) {
        loop.wait_and_load();
        decode_first_line(loop, loop.a[0]);
      }
    }
  }
}

}  // namespace ws
