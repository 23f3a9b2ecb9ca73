// <{ symbol }>
//
// Rows to e4m3 values with factors, in the order that matrix instructions take tokens in. The rule is that of docs/formats.md.
//
//   every thread's largest finite magnitude ─▶ that of all that have a factor ─▶ factor ─▶ x / factor, rounded
//
// A short row is a warp's; a long one a block's. A thread takes 16 elements at a time. What has a factor is said by
// simt/quantise/span/, which makes a row e4m3: quantise_row(params, row, thread).

#include "common/base.cuh"
#include "common/ptx.cuh"
#include "simt/ptx.cuh"
#include "simt/values.cuh"
#include "common/quantise/e4m3.cuh"
#include "simt/quantise/x/<{ x }>.cuh"

namespace ws {

inline constexpr u32 K = <{ k }>;
inline constexpr u32 THREADS = 256;
inline constexpr u32 ROW_THREADS = <{ row_threads }>;  // of which so many have a row
inline constexpr u32 ROWS = THREADS / ROW_THREADS;     // at a time
inline constexpr u32 STEPS = ceil_div(K, ROW_THREADS * 16);
inline constexpr u32 BYTES = sizeof(X) / 8;
// So many may begin beside the kernel before, if registers of one are left there: on a Hopper, whose kernels take e4m3.
inline constexpr u32 EARLY_BLOCKS = 512;
#if __CUDA_ARCH__ == 900
inline constexpr u32 RESIDENT = BYTES == 2 && STEPS <= 2 ? 6 : 1;
#else
inline constexpr u32 RESIDENT = 1;
#endif

// The same order and sizes as `Params` on the host side (src/run/quantise/e4m3.rs).
struct QuantiseE4m3Params {
  const u8* x;     // [rows, K]
  u8* values;      // [rows, K]
  float* factors;  // [rows], or [rows, ⌈K/128⌉]
  u32 rows;
  int settled;  // whether x was there, and nobody needed what is written, before what came before began
};

// How values under a factor become bytes.
class Rounding {
  E4m3Factor factor;

 public:
  __device__ __forceinline__ explicit Rounding(float factor) : factor(factor) {}

  // 16 values, those of x from `at` on, four a word. The other way is a loop over memory: it is seldom gone, and its code and
  // registers would be in the way of all.
  __device__ __forceinline__ void all(const X* x, const u8* memory, long long at, u32 (&words)[4]) const {
    if constexpr (HAS_CVT_E4M3) {
      if (factor.is_quick) {
#pragma unroll
        for (int i = 0; i < 4; i++) words[i] = factor.four(x[i / 2], i % 2 * 4);
        return;
      }
    }
#pragma unroll 1
    for (int i = 0; i < 16; i++) {
#pragma unroll
      for (int word = 0; word < 3; word++) words[word] = words[word] >> 8 | words[word + 1] << 24;
      words[3] = words[3] >> 8 | factor.one(X::one(memory, at + i)) << 24;
    }
  }
};

// Of four threads and four words each: thread t has word t of all of them.
__device__ __forceinline__ void transpose(u32 (&words)[4]) {
#pragma unroll
  for (int distance = 1; distance < 4; distance *= 2) {
    const bool is_upper = threadIdx.x & distance;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (i & distance) continue;
      u32 &low = words[i], &high = words[i + distance];
      const u32 other = __shfl_xor_sync(~0u, is_upper ? low : high, distance);
      (is_upper ? low : high) = other;
    }
  }
}

// The 16 elements of a thread from `at` on.
__device__ __forceinline__ void load(X* x, const QuantiseE4m3Params& params, long long at) {
#pragma unroll
  for (int half = 0; half < 2; half++) x[half].load(params.x, at + half * 8);
}

// Those of the row that begins at `first`; zeros behind its end.
__device__ __forceinline__ void load_or_clear(X* x, const QuantiseE4m3Params& params, long long first, u32 k) {
  if (k < K)
    load(x, params, first + k);
  else
    x[0] = x[1] = X{};
}

// A row to the L2 cache, while what was before the launch still runs.
__device__ __forceinline__ void ask_for_row(const QuantiseE4m3Params& params, u32 row, u32 thread) {
  const u8* first = params.x + static_cast<long long>(row) * K * BYTES;
#pragma unroll 1
  for (u32 k = thread * 16; k < K; k += ROW_THREADS * 16) prefetch_line(first + k * BYTES);
}

// Rounds them and puts them in their places, by all threads of a row; `is_inside` says whether this one has any.
__device__ __forceinline__ void put(const QuantiseE4m3Params& params, const Rounding& rounding, const X* x, long long at,
                                    bool is_inside) {
  u32 words[4] = {};
  if (is_inside) rounding.all(x, params.x, at, words);
  // k = 16t + 8j + 4h + i goes to 32j + 16h + 4t + i of its 64: to the same place, once t and 2j + h are exchanged.
  transpose(words);
  if (is_inside) *reinterpret_cast<uint4*>(params.values + at) = {words[0], words[1], words[2], words[3]};
}

}  // namespace ws

#include "simt/quantise/span/<{ span }>.cuh"

extern "C" __global__ void __launch_bounds__(ws::THREADS, ws::RESIDENT) <{ symbol }>(const __grid_constant__ ws::QuantiseE4m3Params params) {
  using namespace ws;
  const u32 first_row = blockIdx.x * ROWS + threadIdx.x / ROW_THREADS, thread = threadIdx.x % ROW_THREADS;
  launch_dependents();
  if (gridDim.x <= EARLY_BLOCKS && first_row < params.rows) ask_for_row(params, first_row, thread);
  if (!params.settled) wait_for_dependencies();
  for (u32 row = first_row; row < params.rows; row += gridDim.x * ROWS) quantise_row(params, row, thread);
  // Whoever waits for this has waited for that, too.
  if (params.settled) wait_for_dependencies();
}
