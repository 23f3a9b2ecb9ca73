// The inner loop: one warpgroup multiplies its 64 rows of weights with TOKENS tokens along K.
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
constexpr u64 DESCRIPTOR_K16 = 32 >> 4;  // 16 elements of k further

template <int COUNT, int FIRST, class Rows>
__device__ __forceinline__ void decode_steps(u32 (&a)[COUNT][4], const Rows& rows) {
  rows.template decode<FIRST>(a[0]);
  if constexpr (COUNT > 1) rows.template decode<FIRST + 1>(a[1]);
  if constexpr (COUNT > 2) rows.template decode<FIRST + 2>(a[2]);
  if constexpr (COUNT > 3) rows.template decode<FIRST + 3>(a[3]);
}

// Starts COUNT k16 steps as one group.
template <int COUNT>
__device__ __forceinline__ void start(float (&sums)[ACCUMULATORS], const u32 (&a)[COUNT][4], u64 tokens, int width) {
  wgmma_fence();
  multiply<COUNT>(sums, a, tokens, width);
  wgmma_commit_group();
}

// `at` is where this warpgroup's first stage is, `stages` how many tiles along K there are for all K groups together,
// of which this one takes every K_GROUPSth. `first_k_tile` says which tile is K's last. On return `at` is behind them.
// `refill(stage)` lets a warp that also loads do so.
template <class Rows, class Refill>
__device__ __forceinline__ void along_k(float (&sums)[ACCUMULATORS], const Ring& ring, const Role& role, Cursor& at,
                                        const Tile& tile, Refill refill) {
  // One group of registers is read by the tensor core while the next is made. Where registers are scarce, or a stage has
  // one block only, half a block is a group.
  constexpr int STEPS = TOKENS >= 192 || K_BLOCKS == 1 ? 2 : 4;
  u32 a[2][STEPS][4];
  Rows rows;
  const u32 weights = TOKEN_BYTES + role.part * Rows::TILES_USED * K_BLOCKS * BLOCK_BYTES;
  u32 previous = 0;
  int index = role.k_group;
  if (index >= tile.k_tiles) return;

  mbarrier_wait(ring.full(at.slot), at.parity);
  rows.load(ring.stage(at.slot) + weights);
#pragma unroll 1
  for (;;) {
    const u32 stage = ring.stage(at.slot);
    const int blocks = blocks_of(tile.first_k_tile + index);
    Cursor next = at;
    next.advance<K_GROUPS>();
    const bool more = index + K_GROUPS < tile.k_tiles;
#pragma unroll
    for (int block = 0; block < K_BLOCKS; block++) {
      if (K_TAIL && block >= blocks) break;
      const u64 tokens = token_descriptor(stage + block * TOKENS * 128);
      const auto load_next = [&] {
        if (block + 1 < K_BLOCKS) {
          if (!K_TAIL || block + 1 < blocks) rows.load(stage + weights + (block + 1) * BLOCK_BYTES);
        } else if (more) {
          mbarrier_wait(ring.full(next.slot), next.parity);
          rows.load(ring.stage(next.slot) + weights);
        }
      };
      const auto release_previous = [&] {
        if (block == 0 && index != role.k_group) ring.release(previous);
      };
      if constexpr (STEPS == 4) {
        decode_steps<4, 0>(a[block & 1], rows);
        start<4>(sums, a[block & 1], tokens, tile.rows);
        if (block == K_BLOCKS - 1) refill(index);
        load_next();
        wgmma_wait_group<1>();
        release_previous();
      } else {
        decode_steps<2, 0>(a[0], rows);
        start<2>(sums, a[0], tokens, tile.rows);
        wgmma_wait_group<1>();
        release_previous();
        decode_steps<2, 2>(a[1], rows);
        start<2>(sums, a[1], tokens + 2 * DESCRIPTOR_K16, tile.rows);
        if (block == K_BLOCKS - 1) refill(index);
        load_next();
        wgmma_wait_group<1>();
      }
    }
    previous = at.slot;
    at = next;
    index += K_GROUPS;
    if (!more) break;
  }
  wgmma_wait_group<0>();
  ring.release(previous);
}

__device__ __forceinline__ void clear(float (&sums)[ACCUMULATORS]) {
#pragma unroll
  for (int i = 0; i < ACCUMULATORS; i++) sums[i] = 0.f;
}

}  // namespace ws
