// fp32 sums on their way from several warpgroups or blocks into one.
#pragma once

namespace ws {

// Tokens whose sums a warpgroup finishes: all of the tile, its part of them, or the block's share where a cluster splits K.
inline constexpr int HELD_N8 = TOKENS / 8 / TOKEN_PARTS / CLUSTER_SPLITS;
static_assert(TOKENS / 8 % (TOKEN_PARTS * CLUSTER_SPLITS) == 0 && (TOKEN_PARTS == 1 || CLUSTER_SPLITS == 1), "checked by Spec");

// The first of these.
__device__ __forceinline__ int held_token(const Tile& tile, const ConsumerId& consumer) {
  if constexpr (TOKEN_PARTS > 1) return consumer.token_part * HELD_N8 * 8;
  return CLUSTER_SPLITS == 1 ? 0 : tile.split * HELD_N8 * 8;
}

// Scratch memory of a tile group: behind the barriers where the ring is in use all the time, else where the ring was.
__device__ __forceinline__ int scratch_offset(const ConsumerId& consumer) { return SCRATCH_OFFSET + consumer.tile_group * SCRATCH_BYTES; }

// Adds the sums of all K groups, in their order, into those of the first. Whoever uses scratch memory next lets all read it.
template <int COUNT>
__device__ __forceinline__ void add_k_groups(float (&sums)[COUNT][ACCUMULATORS], const ConsumerId& consumer) {
  if constexpr (K_GROUPS > 1) {
    constexpr int LENGTH = COUNT * ACCUMULATORS, LANES = 128 * PARTS * PRODUCT_GROUPS;
    static_assert((K_GROUPS - 1) * LENGTH * LANES * 4 <= SCRATCH_BYTES, "the sums fit");
    float* scratch = reinterpret_cast<float*>(shared_memory + scratch_offset(consumer));
    const int lane = threadIdx.x % 128 + 128 * (consumer.part + PARTS * consumer.product);
    if (consumer.k_group > 0) {
#pragma unroll
      for (int i = 0; i < LENGTH; i++)
        scratch[((consumer.k_group - 1) * LENGTH + i) * LANES + lane] = sums[i / ACCUMULATORS][i % ACCUMULATORS];
    }
    group_sync(consumer);
    if (consumer.k_group == 0) {
#pragma unroll
      for (int other = 0; other < K_GROUPS - 1; other++)
#pragma unroll
        for (int i = 0; i < LENGTH; i++)
          sums[i / ACCUMULATORS][i % ACCUMULATORS] += scratch[(other * LENGTH + i) * LANES + lane];
    }
  }
}

static_assert(CLUSTER_SPLITS == 1 || CLUSTER_SPLITS == 2 || CLUSTER_SPLITS == 4, "pairs, or pairs of pairs");

__device__ __forceinline__ void add(float* sums, const uint4& part) {
  sums[0] += __uint_as_float(part.x);
  sums[1] += __uint_as_float(part.y);
  sums[2] += __uint_as_float(part.z);
  sums[3] += __uint_as_float(part.w);
}

// The blocks of a cluster have the same tile and a part of K each. Every block sends the others their share of the
// tokens, through distributed shared memory, and adds what it is sent to its own. On return the share of this block is at
// the front of `sums`. Nobody waits for what it sends, only for what it is sent.
//
// Slot s holds what rank (own xor s + 1) sent. They are added in pairs, (own + slot 0) + (slot 1 + slot 2): that is
// (0 + 1) + (2 + 3) in every rank but for the order of two addends, so a row has the same bits wherever in a tile it is.
template <int COUNT>
__device__ __forceinline__ void add_cluster_splits(float (&sums)[COUNT][ACCUMULATORS], const Ring& ring, const ConsumerId& consumer) {
  if constexpr (CLUSTER_SPLITS > 1) {
    constexpr int LANES = 128 * PARTS, SHARE = COUNT * HELD_N8;  // 16 bytes each
    static_assert(EXCHANGE_BYTES >= (CLUSTER_SPLITS - 1) * SHARE * LANES * 16, "the shares fit");
    const u32 rank = cluster_rank();
    const u32 mine = ring.base + EXCHANGE_OFFSET + (threadIdx.x % 128 + 128 * consumer.part) * 16;
    if (threadIdx.x == 0) mbarrier_arrive_expect_tx(ring.exchanged(), (CLUSTER_SPLITS - 1) * SHARE * LANES * 16);
    cluster_wait();  // all blocks have begun
    if (consumer.k_group == 0) {
#pragma unroll
      for (u32 to = 0; to < CLUSTER_SPLITS; to++) {
        if (to == rank) continue;
        const u32 slot = (rank ^ to) - 1;
        const u32 there = map_shared_rank(mine + slot * SHARE * LANES * 16, to);
        const u32 barrier = map_shared_rank(ring.exchanged(), to);
#pragma unroll
        for (int i = 0; i < SHARE; i++) {
          const float* v = &sums[i / HELD_N8][4 * (to * HELD_N8 + i % HELD_N8)];
          st_async(there + i * LANES * 16, barrier, v[0], v[1], v[2], v[3]);
        }
      }
#pragma unroll
      for (u32 own = 1; own < CLUSTER_SPLITS; own++) {
        if (own != rank) continue;
#pragma unroll
        for (int i = 0; i < 4 * SHARE; i++)
          sums[i / 4 / HELD_N8][i % (4 * HELD_N8)] = sums[i / 4 / HELD_N8][own * 4 * HELD_N8 + i % (4 * HELD_N8)];
      }
      mbarrier_wait_cluster(ring.exchanged(), 0);
#pragma unroll
      for (int i = 0; i < SHARE; i++) {
        float* v = &sums[i / HELD_N8][4 * (i % HELD_N8)];
        const auto sent = [&](int slot) { return ld_shared_16(mine + (slot * SHARE + i) * LANES * 16); };
        add(v, sent(0));
        if constexpr (CLUSTER_SPLITS == 4) {
          const uint4 first = sent(1);
          float pair[4] = {__uint_as_float(first.x), __uint_as_float(first.y), __uint_as_float(first.z),
                           __uint_as_float(first.w)};
          add(pair, sent(2));
#pragma unroll
          for (int j = 0; j < 4; j++) v[j] += pair[j];
        }
      }
    }
  }
}

}  // namespace ws
