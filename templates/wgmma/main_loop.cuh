// The inner loop: one warpgroup multiplies its 64 rows of weights with WIDTH tokens along K.
//
// The weights of one K block become registers while the tensor core still works on the block before, so at most one
// group of wgmma is under way. A stage is released once the first group of the next one has been started and its own last
// group is done.
#pragma once

namespace ws {

// "Matrix descriptor": K-major rows of 128 bytes in the 128-byte swizzle, 8 rows = 1024 bytes apart.
__device__ __forceinline__ u64 token_descriptor(u32 shared) {
  constexpr u64 STRIDE = u64(1024 >> 4) << 32, SWIZZLE_128B = u64(1) << 62, LEADING = u64(1) << 16;
  return (shared >> 4 & 0x3FFF) | LEADING | STRIDE | SWIZZLE_128B;
}
inline constexpr u64 DESCRIPTOR_K16 = 32 >> 4;  // 16 elements of k further

// A warpgroup on its way along K. It takes every K_GROUPSth of the tile's stages, which in the ring begin at
// `first_stage`. `inline_producer(stage)` lets a warp that also loads do so.
template <class Rows, class InlineProducer, int WIDTH>
struct MainLoop {
  // One group of registers is read by the tensor core while the next is made. Where registers are scarce, or a stage has
  // one block only, half a block is a group.
  static constexpr int STEPS = TOKENS >= 192 || K_BLOCKS == 1 ? 2 : 4;
  // Where the next stage comes to the same place, this one is released before it is waited for.
  static constexpr bool EAGER = STAGES == K_GROUPS;

  const Ring& ring;
  const Tile& tile;
  const InlineProducer& inline_producer;
  const u32 first_stage;
  const u32 weights;  // from a stage to this part's
  int index;          // of the stage in the tile
  Cursor at;          // of the stage in the ring
  int held = -1;      // the slot of the stage before, which is not released yet
  Rows rows;
  u32 a[2][STEPS][4];

  __device__ MainLoop(const Ring& ring, const ConsumerId& consumer, u32 first_stage, const Tile& tile, const InlineProducer& inline_producer)
      : ring(ring),
        tile(tile),
        inline_producer(inline_producer),
        first_stage(first_stage),
        weights(TOKEN_BYTES + consumer.part * Rows::TILES_USED * K_BLOCKS * BLOCK_BYTES),
        index(consumer.k_group),
        at(Cursor::at(first_stage + consumer.k_group)) {}

  __device__ void wait_and_load(Cursor where) {
    mbarrier_wait(ring.full(where.slot), where.parity);
    if constexpr (COPIED) fence_proxy_async();
    rows.load(ring.stage(where.slot) + weights);
  }

  // When all groups but the last are done, and that is of this stage.
  __device__ void release_held() const {
    if (!EAGER && held >= 0) ring.release(held);
  }

  // A stage of BLOCKS K blocks, the first of which is in `rows`; leaves the first of the next stage there.
  template <int BLOCKS>
  __device__ void stage() {
    const u32 stage = ring.stage(at.slot);
    Cursor next = at;
    next.advance<K_GROUPS>();
    const bool more = index + K_GROUPS < tile.k_tiles;
#pragma unroll
    for (int block = 0; block < BLOCKS; block++) {
      const u64 tokens = token_descriptor(stage + block * WIDTH * 128);
#pragma unroll
      for (int first = 0; first < 4; first += STEPS) {
        u32(&buffer)[STEPS][4] = a[STEPS == 4 ? block % 2 : first / STEPS];
#pragma unroll
        for (int step = 0; step < STEPS; step++) rows.decode(buffer[step], first + step);
        multiply<WIDTH>(buffer, tokens + first * DESCRIPTOR_K16);
        // The only group of a stage: who refills below may need the very stage that is held.
        constexpr bool ONLY = BLOCKS == 1 && STEPS == 4;
        if (ONLY) {
          wgmma_wait_group<1>();
          release_held();
        }
        if (first + STEPS == 4) {
          if (block + 1 < BLOCKS) {
            rows.load(stage + weights + (block + 1) * BLOCK_BYTES);
          } else {
            if (EAGER) {
              wgmma_wait_group<0>();
              ring.release(at.slot);
            }
            inline_producer(first_stage + index);
            if (more) wait_and_load(next);
          }
        }
        wgmma_wait_group<1>();
        if (!ONLY && block == 0 && first == 0) release_held();
      }
    }
    held = at.slot;
    at = next;
    index += K_GROUPS;
  }

  __device__ void run() {
    if (index >= tile.k_tiles) return;
    wait_and_load(at);
    const bool has_tail = K_TAIL && tile.first_k_tile + tile.k_tiles == K_TILES;
    const int whole = tile.k_tiles - (has_tail ? 1 : 0);
#pragma unroll 1
    while (index < whole) stage<K_BLOCKS>();
    if constexpr (K_TAIL) {
      if (index < tile.k_tiles) {
        wgmma_wait_group<0>();  // or ptxas takes the tail's registers for still in use, and serialises
        stage<LAST_BLOCKS>();
      }
    }
    wgmma_wait_group<0>();
    if (!EAGER) ring.release(held);
  }
};

template <class Rows, class InlineProducer, int WIDTH, int... WIDER>
__device__ __forceinline__ void along_k_in(Widths<WIDTH, WIDER...>, float (&sums)[ACCUMULATORS], const Ring& ring,
                                           const ConsumerId& consumer, u32 first_stage, const Tile& tile, const InlineProducer& inline_producer) {
  if constexpr (sizeof...(WIDER) > 0) {
    if (tile.rows > WIDTH) {
      along_k_in<Rows>(Widths<WIDER...>(), sums, ring, consumer, first_stage, tile, inline_producer);
      return;
    }
  }
  clear_sums<WIDTH>();
  MainLoop<Rows, InlineProducer, WIDTH>(ring, consumer, first_stage, tile, inline_producer).run();
  read_sums<WIDTH>(sums);
}

template <class Rows, class InlineProducer>
__device__ __forceinline__ void main_loop(float (&sums)[ACCUMULATORS], const Ring& ring, const ConsumerId& consumer, u32 first_stage,
                                        const Tile& tile, const InlineProducer& inline_producer) {
  along_k_in<Rows>(TileWidths(), sums, ring, consumer, first_stage, tile, inline_producer);
}

}  // namespace ws
