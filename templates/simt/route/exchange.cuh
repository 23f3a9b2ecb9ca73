// Which tokens have which expert, by block of a cluster: each sends the others its masks, which count at a barrier there, and waits
// for theirs. (A barrier of the cluster that releases them waits for all that its threads have written to global memory as well.)
#pragma once

namespace ws {

// As many as there may be, and as every device can run.
inline constexpr int BLOCKS = __CUDA_ARCH__ >= 900 ? CLUSTER : 1, PORTABLE = BLOCKS < 8 ? BLOCKS : 8;

// Rows of an expert.
struct Rows {
  int all, before;  // of the cluster, of the blocks before one
};

struct Masks {
  static constexpr int WORDS = ceil_div(LOCAL_EXPERTS, 4) * 4, PIECES = WORDS / 4;
  static_assert(WORDS <= THREADS, "a thread a word");

  alignas(16) u32 of[BLOCKS][WORDS];  // a bit for each token of a block's chunk
  u64 sent;                           // completes when all others' have come

  // By all threads, before they meet. One block needs nobody's.
  __device__ __forceinline__ void begin(int rank, int blocks) {
    if (threadIdx.x < WORDS) of[rank][threadIdx.x] = 0;
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0) {
      mbarrier_init(address(&sent), 1);
      fence_mbarrier_init();
      if (blocks > 1) mbarrier_arrive_expect_tx(address(&sent), (blocks - 1) * WORDS * 4);
    }
    __syncwarp();
    cluster_arrive();
#endif
  }

  // By all threads, when this block's are known.
  __device__ __forceinline__ void send(int rank, int blocks) {
#if __CUDA_ARCH__ >= 900
    cluster_wait();  // all have begun
    if (blocks == 1) return;
#pragma unroll 1
    for (int i = threadIdx.x; i < PIECES * blocks; i += THREADS) {
      const int to = i / PIECES;
      u32* const words = &of[rank][i % PIECES * 4];
      if (to != rank)
        st_async(map_shared_rank(address(words), to), map_shared_rank(address(&sent), to), __uint_as_float(words[0]),
                 __uint_as_float(words[1]), __uint_as_float(words[2]), __uint_as_float(words[3]));
    }
#endif
  }

  __device__ __forceinline__ void wait(int blocks) {
#if __CUDA_ARCH__ >= 900
    if (blocks > 1) mbarrier_wait_cluster(address(&sent), 0);
#endif
  }

  // When all have come.
  __device__ __forceinline__ Rows rows(int expert, int rank, int blocks) const {
    if (blocks == 1) return {__popc(of[0][expert]), 0};
    return BLOCKS == PORTABLE || blocks == BLOCKS ? rows_of<BLOCKS>(expert, rank) : rows_of<PORTABLE>(expert, rank);
  }

 private:
  template <int COUNT>
  __device__ __forceinline__ Rows rows_of(int expert, int rank) const {
    Rows rows = {0, 0};
#pragma unroll
    for (int block = 0; block < COUNT; block++) {
      const int here = __popc(of[block][expert]);
      rows.all += here;
      if (block < rank) rows.before += here;
    }
    return rows;
  }

  __device__ static u32 address(const void* shared) { return static_cast<u32>(__cvta_generic_to_shared(shared)); }
};

}  // namespace ws
