// A stage of a warpgroup's way along K, of weights that become e4m3, where there are no registers for two sums of every token:
// a line of 128 of K is multiplied with one half of the tokens, then with the other.
//
//   multiply the first half ─▶ wait, promote ─▶ multiply the second half ─▶ load the line behind ─▶ wait, promote, decode
//
// Weights are decoded once for twice as many tokens. While a warpgroup promotes or decodes, the tensor core has another's
// instructions.
#pragma once

#include "wgmma/stage/e4m3_line.cuh"

namespace ws {

static_assert(K_BLOCKS <= 4 && SUM_PARTS == 2 && TOKENS % 16 == 0, "host and device agree");

using Fragments = Line;

// Before the first stage: its first line.
template <class Loop>
__device__ __forceinline__ void begin_stages(Loop& loop) {
  loop.wait_and_load();
  decode_first_line(loop, loop.a);
}

// Line `index` of a stage, of BLOCKS K blocks, the tokens of which are at `line`. Sums begin anew; those of the second half are
// under way.
template <int BLOCKS, int WIDTH, class Loop>
__device__ __forceinline__ void multiply_halves(Loop& loop, u32 line, int index) {
  constexpr int HALF = WIDTH / 2;
  const u64 first = token_descriptor(line), second = token_descriptor(line + HALF * 128);
  multiply_blocks<HALF>(BLOCKS, loop.a, first);
  // Multiplying has brought the lanes together after they read factors there.
  if (index == 0 && K_FACTORS) loop.release_held();
  loop.follow(loop.ring, loop.at, index);
  wgmma_wait_group<0>();
  loop.template promote<HALF, 0>();
  multiply_blocks<HALF>(BLOCKS, loop.a, second);
}

// A stage of BLOCKS K blocks, the first line of which is in `loop.a`; leaves the first of the next stage there.
template <int BLOCKS, int WIDTH, class Loop>
__device__ __forceinline__ void multiply_stage(Loop& loop) {
  constexpr int LINES = ceil_div(BLOCKS, 2), LAST = BLOCKS - 2 * (LINES - 1), HALF = WIDTH / 2;
  const u32 stage = loop.at.stage;
  if constexpr (LINES == 2) {
    multiply_halves<2, WIDTH>(loop, stage, 0);
    const u32 block = stage + loop.weights + 2 * BLOCK_BYTES;
    loop.load(block);
    wgmma_wait_group<0>();
    loop.template promote<HALF, HALF>();
    decode_line<LAST>(loop, loop.a, block);
  }
  multiply_halves<LAST, WIDTH>(loop, stage + (LINES - 1) * WIDTH * 128, LINES - 1);
  if (Loop::EAGER) {
    wgmma_wait_group<0>();
    Ring::release(loop.at.empty());
  }
  loop.inline_producer(loop.first_stage + loop.index);
  if (loop.template go_on<BLOCKS>()) {
    loop.wait_and_load();
    wgmma_wait_group<0>();
    loop.template promote<HALF, HALF>();
    if (!K_FACTORS) loop.release_held();
    decode_first_line(loop, loop.a);
  }
}

}  // namespace ws
