// <{ symbol }>
//
// Rows to e4m3 values with a factor each, in the order that matrix instructions take tokens in. The rule is that of
// docs/formats.md.
//
//   a block a row: every thread's largest finite magnitude ─▶ the row's ─▶ factor ─▶ x / factor, rounded
//
// A thread takes 16 elements at a time, which it reads a second time when the factor is known: they are near then.

#include "common/base.cuh"
#include "common/ptx.cuh"
#include "simt/ptx.cuh"
#include "simt/values.cuh"
#include "common/quantise/round.cuh"
#include "simt/quantise/x/<{ x }>.cuh"

namespace ws {

inline constexpr u32 K = <{ k }>;
inline constexpr u32 THREADS = 256;

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

// The largest of all threads' magnitudes, as bits. All have met when it returns.
__device__ __forceinline__ u32 largest_of_block(u32 magnitude) {
  __shared__ u32 of_warps[THREADS / 32];
  const u32 of_warp = redux_max(magnitude);
  __syncthreads();  // the row before has been read
  if (lane_index() == 0) of_warps[warp_index()] = of_warp;
  __syncthreads();
  return redux_max(of_warps[lane_index() % (THREADS / 32)]);
}

}  // namespace ws

extern "C" __global__ void __launch_bounds__(ws::THREADS) <{ symbol }>(const __grid_constant__ ws::QuantiseE4m3Params params) {
  using namespace ws;
  launch_dependents();
  wait_for_dependencies();
  for (u32 row = blockIdx.x; row < params.rows; row += gridDim.x) {
    const long long first = static_cast<long long>(row) * K;
    u32 largest = 0;
    for (u32 k = threadIdx.x * 16; k < K; k += THREADS * 16) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        X x;
        x.load(params.x, first + k + half * 8);
#pragma unroll
        for (int i = 0; i < 8; i++) {
          const float magnitude = fabsf(x.at(i));
          if (is_number(magnitude)) largest = max(largest, __float_as_uint(magnitude));
        }
      }
    }
    largest = largest_of_block(largest);
    const float factor = largest == 0 ? 1.0f : fmaxf(__fdiv_rn(__uint_as_float(largest), 448.0f), 0x1p-126f);
    if (threadIdx.x == 0) params.factors[row] = factor;
    for (u32 k = threadIdx.x * 16; k < K; k += THREADS * 16) {
      // k = 16t + 8j + 4h + i goes to 32j + 16h + 4t + i of its 64.
      u8* to = params.values + first + k / 64 * 64 + k % 64 / 4;
#pragma unroll
      for (int j = 0; j < 2; j++) {
        X x;
        x.load(params.x, first + k + j * 8);
#pragma unroll
        for (int h = 0; h < 2; h++) {
          u32 four = 0;
#pragma unroll
          for (int i = 0; i < 4; i++) four |= e4m3_of(x.at(4 * h + i), factor) << (8 * i);
          *reinterpret_cast<u32*>(to + 32 * j + 16 * h) = four;
        }
      }
    }
  }
}
