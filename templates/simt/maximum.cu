// <{ symbol }>
//
// The largest finite magnitude of a tensor: each block finds that of its part, and none has to be there before. The order in
// which they are compared does not matter.

#include "common/base.cuh"
#include "simt/ptx.cuh"
#include "simt/values.cuh"
#include "common/quantise/finite.cuh"
#include "simt/quantise/params.cuh"
#include "simt/quantise/x/<{ x }>.cuh"

namespace ws {

inline constexpr int MAXIMUM_THREADS = 512;

}  // namespace ws

extern "C" __global__ void __launch_bounds__(ws::MAXIMUM_THREADS) <{ symbol }>(const __grid_constant__ ws::QuantiseParams params) {
  using namespace ws;
  launch_dependents();
  wait_for_dependencies();
  const long long eights = 2ll * params.blocks, step = 1ll * gridDim.x * MAXIMUM_THREADS;
  // Bits of numbers that are not negative are in their order.
  u32 largest = 0;
#pragma unroll 4
  for (long long at = 1ll * blockIdx.x * MAXIMUM_THREADS + threadIdx.x; at < eights; at += step) {
    X x;
    x.load(params.x, at * 8);
    largest = max(largest, largest_finite(x));
  }
  __shared__ u32 of_warps[MAXIMUM_THREADS / 32];
  u32 most = redux_max(largest);
  if (lane_index() == 0) of_warps[warp_index()] = most;
  __syncthreads();
  most = redux_max(of_warps[lane_index() % (MAXIMUM_THREADS / 32)]);
  // The block's own place, and those that no block has.
  const int place = blockIdx.x + gridDim.x * threadIdx.x;
  if (place < MAXIMA) reinterpret_cast<u32*>(params.own + 1)[place] = threadIdx.x == 0 ? most : 0;
}
