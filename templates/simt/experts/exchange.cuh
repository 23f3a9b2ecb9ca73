// How rows of h go from block to block in a launch of simt/experts.cu: each puts what it has made, waits for the others, and loads all.
#pragma once

namespace ws {

// Where blocks give each other rows of h. A word of a cell is 0 until it is written, so that who reads it sees by itself whether it
// is there; a launch writes those of one half, and clears those of the other for the next launch.
struct Exchange {
  static constexpr int BYTES = ROWS * INTERMEDIATE * 2;
  enum : u32 { MINUS_ZERO = 0x8000 };  // instead of two zeros

  u8* h;
  u8* next;  // null: state counts whose rows are there

  __device__ Exchange(u8* cells, u8* h, int half)
      : h(cells ? cells + half * BYTES : h), next(cells ? cells + (1 - half) * BYTES : nullptr) {}

  __device__ __forceinline__ void put(long long element, u32 word) const {
    u32* const to = reinterpret_cast<u32*>(h + element * 2);
    if (next)
      st_relaxed_gpu(to, word ? word : MINUS_ZERO);
    else
      *to = word;
  }

  __device__ __forceinline__ void clear(int number, int numbers) const {
    if (!next) return;
    for (int i = number * THREADS + threadIdx.x; i < BYTES / 16; i += numbers * THREADS)
      reinterpret_cast<uint4*>(next)[i] = make_uint4(0, 0, 0, 0);
  }
};

// What is counted in state[1]: shares of up that are done, and in its upper half blocks that look at the counts no more. One word, so
// that nobody sees the second of a block before the first.
enum : int { IS_PAST = 1 << 16, SHARES = IS_PAST - 1 };
static_assert(BLOCKS < IS_PAST, "a half of the word for each");

// Says that a number's part of h is there, and waits for the others', or, where cells tell, until most have theirs. What nobody has
// begun by and by is done here: its number, or -1.
__device__ __forceinline__ int wait_for_others(const ExpertsParams& params, const Exchange& exchange, int numbers) {
  if (exchange.next)
    atomicAdd(params.state + 1, 1);
  else
    add_release_gpu(params.state + 1, 1);
  const int enough = exchange.next ? numbers - numbers / 8 : numbers;
  for (u32 turn = 0;; turn++) {
    const int begun = ld_acquire_gpu(params.state), done = ld_acquire_gpu(params.state + 1) & SHARES;
    if (begun >= numbers && done >= enough) return -1;
    if (turn > 100 && begun < numbers) {
      const int more = atomicAdd(params.state, 1);
      if (more < numbers) return more;
    }
    // Many seconds: what it counts in was not 0.
    if (turn > 1u << 24) __trap();
  }
}

// All rows of h, to shared memory.
__device__ __forceinline__ void load_h(const ExpertsParams& params, const Lists& lists, const Exchange& exchange, u32 to) {
  constexpr int PIECES = INTERMEDIATE / 8, AT_ONCE = 4;
  const int all = params.tokens * K * PIECES;
  if (!exchange.next) {
    for (int i = threadIdx.x; i < all; i += THREADS)
      cp_async_16(to + i / PIECES * H_STRIDE + i % PIECES * 16, exchange.h + static_cast<long long>(i) * 16, true);
    cp_async_commit_group();
    cp_async_wait_group<0>();
    return;
  }
  for (int first = threadIdx.x; first < all; first += AT_ONCE * THREADS) {
    uint4 of[AT_ONCE];
    bool are_there;
    u32 turn = 0;
    do {
#pragma unroll
      for (int nth = 0; nth < AT_ONCE; nth++) {
        const int i = first + nth * THREADS;
        of[nth] = make_uint4(1, 1, 1, 1);
        // Of a slot without an expert there is no row.
        if (i < all && lists.ids[i / PIECES] >= 0) of[nth] = ld_relaxed_gpu_16(exchange.h + static_cast<long long>(i) * 16);
      }
      are_there = true;
#pragma unroll
      for (int nth = 0; nth < AT_ONCE; nth++) are_there &= of[nth].x && of[nth].y && of[nth].z && of[nth].w;
      if (turn++ > 1u << 24) __trap();
    } while (!are_there);
#pragma unroll
    for (int nth = 0; nth < AT_ONCE; nth++)
      if (const int i = first + nth * THREADS; i < all)
        st_shared_16(to + i / PIECES * H_STRIDE + i % PIECES * 16, of[nth].x, of[nth].y, of[nth].z, of[nth].w);
  }
}

}  // namespace ws
