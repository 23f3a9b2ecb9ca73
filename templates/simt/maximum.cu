// <{ symbol }>
//
// The largest finite magnitude of a tensor: each block finds that of its part, and none has to be there before. The order in
// which they are compared does not matter.

#include "common/base.cuh"
#include "simt/ptx.cuh"
#include "simt/values.cuh"
#include "simt/quantise/params.cuh"
#include "simt/quantise/x/<{ x }>.cuh"

namespace ws {

inline constexpr int MAXIMUM_THREADS = 512;

// NaN is no number, and infinities are not looked at.
__device__ __forceinline__ float largest_finite(const X (&x)[1]) {
  float most = X::most_of(x);
  if (__float_as_uint(most) < 0x7F800000u) return most;
  most = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const float magnitude = fabsf(x[0].at(i));
    most = fmaxf(most, __float_as_uint(magnitude) < 0x7F800000u ? magnitude : 0.0f);
  }
  return most;
}

}  // namespace ws

extern "C" __global__ void __launch_bounds__(ws::MAXIMUM_THREADS) <{ symbol }>(const __grid_constant__ ws::QuantiseParams params) {
  using namespace ws;
  launch_dependents();
  wait_for_dependencies();
  const long long eights = 2ll * params.blocks, step = 1ll * gridDim.x * MAXIMUM_THREADS;
  float largest = 0.0f;
#pragma unroll 4
  for (long long at = 1ll * blockIdx.x * MAXIMUM_THREADS + threadIdx.x; at < eights; at += step) {
    X x[1];
    x[0].load(params.x, at * 8);
    largest = fmaxf(largest, largest_finite(x));
  }
  // Bits of numbers that are not negative are in their order.
  __shared__ u32 of_warps[MAXIMUM_THREADS / 32];
  u32 most = redux_max(__float_as_uint(largest));
  if (lane_index() == 0) of_warps[warp_index()] = most;
  __syncthreads();
  most = redux_max(of_warps[lane_index() % (MAXIMUM_THREADS / 32)]);
  // The block's own place, and those that no block has.
  const int place = blockIdx.x + gridDim.x * threadIdx.x;
  if (place < MAXIMA) reinterpret_cast<u32*>(params.own + 1)[place] = threadIdx.x == 0 ? most : 0;
}
