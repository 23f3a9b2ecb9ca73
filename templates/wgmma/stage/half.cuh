// A stage of a warpgroup's way along K, of weights that become 16-bit values: four steps of 16 a K block.
#pragma once

namespace ws {

// One group of registers is read by the tensor core while the next is made. Where registers are scarce (wide tiles, four
// warpgroups of several widths), or a stage has one block only, half a block is a group.
// No variables, as LIMIT.
enum : bool { IS_CROWDED = CONSUMER_THREADS == 512 && CONSUMER_REGISTERS > 0 && PERSISTENT && TileWidths::COUNT > 1 };
enum : int { STEPS = TOKENS >= 192 || K_BLOCKS == 1 || IS_CROWDED ? 2 : 4 };
using Fragments = u32[2][STEPS][4];

// Before the first stage: its first block.
template <class Loop>
__device__ __forceinline__ void begin_stages(Loop& loop) {
  loop.wait_and_load();
}

// A stage of BLOCKS K blocks, the first of which is in `loop.rows`; leaves the first of the next stage there.
template <int BLOCKS, int WIDTH, class Loop>
__device__ __forceinline__ void multiply_stage(Loop& loop) {
  const u32 stage = loop.at.stage;
  const u64 first_tokens = token_descriptor(stage);
  bool has_come = false;
#pragma unroll
  for (int block = 0; block < BLOCKS; block++) {
    if (block + 1 == BLOCKS) has_come = loop.has_come();
    const u64 tokens = first_tokens + block * (WIDTH * 128 >> 4);
#pragma unroll
    for (int first = 0; first < 4; first += STEPS) {
      u32(&buffer)[STEPS][4] = loop.a[STEPS == 4 ? block % 2 : first / STEPS];
#pragma unroll
      for (int step = 0; step < STEPS; step++) loop.rows.decode(buffer[step], first + step);
      loop.rows.finish(buffer, first);
      // Asked for before products are begun, which takes until those before are done.
      if (first + STEPS == 4 && block + 1 < BLOCKS) loop.load(stage + loop.weights + (block + 1) * BLOCK_BYTES);
      multiply<WIDTH>(buffer, tokens + first * DESCRIPTOR_STEP);
      // The only group of a stage: who refills below may need the very stage that is held.
      constexpr bool ONLY = BLOCKS == 1 && STEPS == 4;
      if (ONLY) {
        wgmma_wait_group<1>();
        loop.release_held();
      }
      if (first + STEPS == 4 && block + 1 == BLOCKS) {
        if (Loop::EAGER) {
          wgmma_wait_group<0>();
          Ring::release(loop.at.empty());
        }
        loop.inline_producer(loop.first_stage + loop.index);
        if (loop.go_on()) loop.wait_and_load(has_come);
      }
      wgmma_wait_group<1>();
      if (!ONLY && block == 0 && first == 0) loop.release_held();
    }
  }
}

}  // namespace ws
