// The inner loop: one warpgroup multiplies its 64 rows of weights with WIDTH tokens along K.
//
// The weights of one K block become registers while the tensor core still works on the block before, so at most one
// group of wgmma is under way. A stage is released once the first group of the next one has been started and its own last
// group is done.
#pragma once

namespace ws {

// A warpgroup on its way along K. It takes every K_GROUPSth of the tile's stages, which in the ring begin at
// `first_stage`. `inline_producer(stage)` lets a warp that also loads do so.
//
// Factors along K are a base, not a member: where there are none it takes no room, and machine code is what it is without it.
template <class Rows, class InlineProducer, int WIDTH>
struct MainLoop : LineFactors {
  // Where the next stage comes to the same place, this one is released before it is waited for.
  static constexpr bool EAGER = STAGES == STAGE_STEP;

  const Ring& ring;
  const Tile& tile;
  const InlineProducer& inline_producer;
  const u32 first_stage;
  const u32 weights;  // from a stage to this part's
  int index;          // of the stage in the tile
  Stop at;            // of the stage in the ring
  int held = -1;      // where the stage before is to be released, if there is one
  Rows rows;
  Fragments a;

  __device__ MainLoop(const Ring& ring, const ConsumerId& consumer, u32 first_stage, const Tile& tile, const InlineProducer& inline_producer)
      : LineFactors(ring, ring.stop(first_stage + consumer.k_group)),
        ring(ring),
        tile(tile),
        inline_producer(inline_producer),
        first_stage(first_stage),
        weights(TOKEN_BYTES + consumer.part * Rows::TILES_USED * K_BLOCKS * BLOCK_BYTES),
        index(consumer.k_group),
        at(ring.stop(first_stage + consumer.k_group)) {}

  // Whether the next stage has come, asked before the block ahead of it is decoded: an answer takes as long as some decoding. Where
  // tiles are tall or warpgroups few it costs more than it gains.
  __device__ bool has_come() const {
    if (WIDTH > 32 || CONSUMER_THREADS <= 256) return false;
    Stop next = at;
    next.template advance<STAGE_STEP>();
    return mbarrier_test_wait(next.full, next.parity);
  }

  __device__ void wait_and_load(bool has_come = false) {
    if (!has_come) mbarrier_wait(at.full, at.parity);
    if constexpr (COPIED) fence_proxy_async();
    load(at.stage + weights);
  }

  // The K block that begins there.
  __device__ void load(u32 block) { rows.load(block, ring.base); }

  // When all groups but the last are done, and that is of this stage.
  __device__ void release_held() const {
    if (!EAGER && held >= 0) Ring::release(held);
  }

  // To the next stage of this warpgroup, and whether there is one. The one before is done with but for what is under way. There is none
  // behind one of fewer BLOCKS than others; ptxas (12.9) crashes over code of e4m3 values that could go on there if K is split.
  template <int BLOCKS = K_BLOCKS>
  __device__ bool go_on() {
    held = at.empty();
    at.template advance<STAGE_STEP>();
    index += K_GROUPS;
    return BLOCKS == K_BLOCKS && index < tile.k_tiles;
  }

  __device__ void run() {
    if (index >= tile.k_tiles) return;
    begin_stages(*this);
    // With no loop around them, ptxas (12.9, 13.0) leaves the products of the first half of the tokens out.
    if constexpr (SUM_PARTS == 2 && K_TILES_PER_SPLIT <= 2) index = of_unknown_value(index);
    const bool has_tail = K_TAIL && tile.first_k_tile + tile.k_tiles == K_TILES;
    const int whole = tile.k_tiles - (has_tail ? 1 : 0);
#pragma unroll 1
    while (index < whole) multiply_stage<K_BLOCKS, WIDTH>(*this);
    if constexpr (K_TAIL) {
      if (index < tile.k_tiles) {
        wgmma_wait_group<0>();  // or ptxas takes the tail's registers for still in use, and serialises
        multiply_stage<LAST_BLOCKS, WIDTH>(*this);
      }
    }
    finish_sums<WIDTH>(*this);
    // All lanes have read theirs.
    if constexpr (K_FACTORS) __syncwarp();
    if (!EAGER) Ring::release(held);
  }
};

}  // namespace ws
