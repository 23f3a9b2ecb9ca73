// <{ symbol }>
//
// Rows to e4m3 values with a factor each, in the order that matrix instructions take tokens in. The rule is that of
// docs/formats.md.
//
//   a row: every thread's largest finite magnitude ─▶ the row's ─▶ factor ─▶ x / factor, rounded
//
// A short row is a warp's, so that no block has to meet; a long one a block's. A thread takes 16 elements at a time, and keeps
// them, if they are not many, until the factor is known.

#include "common/base.cuh"
#include "common/ptx.cuh"
#include "simt/ptx.cuh"
#include "simt/values.cuh"
#include "common/quantise/round.cuh"
#include "simt/quantise/x/<{ x }>.cuh"

namespace ws {

inline constexpr u32 K = <{ k }>;
inline constexpr u32 THREADS = 256;
inline constexpr u32 ROW_THREADS = <{ row_threads }>;  // of which so many have a row
inline constexpr u32 ROWS = THREADS / ROW_THREADS;     // at a time
inline constexpr u32 STEPS = ceil_div(K, ROW_THREADS * 16);
inline constexpr bool KEPT = STEPS <= 4;

// The same order and sizes as `Params` on the host side (src/run/quantise/e4m3.rs).
struct QuantiseE4m3Params {
  const u8* x;     // [rows, K]
  u8* values;      // [rows, K]
  float* factors;  // [rows]
  u32 rows;
};

// NaN and infinities are no numbers.
__device__ __forceinline__ bool is_number(float x) { return (__float_as_uint(x) & 0x7FFFFFFFu) < 0x7F800000u; }

// The nearest e4m3 byte; NaN of what is no number. The largest quotient is 448, or a rounding more.
__device__ __forceinline__ u32 e4m3_of(float x, float factor) {
  if (!is_number(x)) return 0x7F;
  const float magnitude = fabsf(__fdiv_rn(x, factor));
  return e4m3_byte(rounded<0x3C800000u, 3>(magnitude)) | (__float_as_uint(x) >> 24 & 0x80u);  // normal from 2^-6 on
}

// How a row's values become bytes.
class Rounding {
  float factor, reciprocal;
  bool is_quick;

 public:
  __device__ __forceinline__ explicit Rounding(float factor)
      : factor(factor), reciprocal(__frcp_rn(factor)), is_quick(QuickQuotients::can_be(factor)) {}

  // Four of eight values.
  __device__ __forceinline__ u32 four(const X& x, int first) const {
    if constexpr (HAS_CVT_E4M3) {
      if (is_quick) {
        const u32 low = cvt_e4m3x2(quotient(x.at(first)), quotient(x.at(first + 1)));
        return low | cvt_e4m3x2(quotient(x.at(first + 2)), quotient(x.at(first + 3))) << 16;
      }
    }
    u32 bytes = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) bytes |= e4m3_of(x.at(first + i), factor) << (8 * i);
    return bytes;
  }

 private:
  // x / factor, rounded once: the reciprocal is, and its mantissa is not that of all ones (P. Markstein, "Computation of elementary
  // functions on the IBM RISC System/6000 processor", 1990). An infinity becomes NaN, zeros keep their sign.
  __device__ __forceinline__ float quotient(float x) const {
    const float near = __fmul_rn(x, reciprocal);
    const float more = __fmaf_rn(near, factor, -x);
    return __fmaf_rn(more, -reciprocal, near);
  }
};

// The largest of the magnitudes of all threads of a row, as bits. All of them have met when it returns.
__device__ __forceinline__ u32 largest_of_row(u32 magnitude) {
  const u32 of_warp = redux_max(magnitude);
  if constexpr (ROW_THREADS == 32) return of_warp;
  __shared__ u32 of_warps[THREADS / 32];
  __syncthreads();  // the row before has been read
  if (lane_index() == 0) of_warps[warp_index()] = of_warp;
  __syncthreads();
  return redux_max(of_warps[lane_index() % (THREADS / 32)]);
}

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

}  // namespace ws

extern "C" __global__ void __launch_bounds__(ws::THREADS) <{ symbol }>(const __grid_constant__ ws::QuantiseE4m3Params params) {
  using namespace ws;
  launch_dependents();
  wait_for_dependencies();
  const u32 thread = threadIdx.x % ROW_THREADS;
  for (u32 row = blockIdx.x * ROWS + threadIdx.x / ROW_THREADS; row < params.rows; row += gridDim.x * ROWS) {
    const long long first = static_cast<long long>(row) * K;
    X kept[KEPT ? STEPS : 1][2];
    u32 largest = 0;
#pragma unroll(KEPT ? STEPS : 1)
    for (u32 step = 0; step < STEPS; step++) {
      const u32 k = (step * ROW_THREADS + thread) * 16;
      X(&x)[2] = kept[KEPT ? step : 0];
      if (k < K) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
          x[half].load(params.x, first + k + half * 8);
#pragma unroll
          for (int i = 0; i < 8; i++) {
            const float magnitude = fabsf(x[half].at(i));
            if (is_number(magnitude)) largest = max(largest, __float_as_uint(magnitude));
          }
        }
      }
    }
    largest = largest_of_row(largest);
    const float factor = largest == 0 ? 1.0f : fmaxf(__fdiv_rn(__uint_as_float(largest), 448.0f), 0x1p-126f);
    if (thread == 0) params.factors[row] = factor;
    const Rounding rounding(factor);
#pragma unroll(KEPT ? STEPS : 1)
    for (u32 step = 0; step < STEPS; step++) {
      const u32 k = (step * ROW_THREADS + thread) * 16;
      X(&x)[2] = kept[KEPT ? step : 0];
      u32 words[4] = {};
      if (k < K) {
#pragma unroll
        for (int j = 0; j < 2; j++) {
          if constexpr (!KEPT) x[j].load(params.x, first + k + j * 8);
#pragma unroll
          for (int h = 0; h < 2; h++) words[2 * j + h] = rounding.four(x[j], 4 * h);
        }
      }
      // k = 16t + 8j + 4h + i goes to 32j + 16h + 4t + i of its 64: to the same place, once t and 2j + h are exchanged.
      transpose(words);
      if (k < K) *reinterpret_cast<uint4*>(params.values + first + k) = {words[0], words[1], words[2], words[3]};
    }
  }
}
