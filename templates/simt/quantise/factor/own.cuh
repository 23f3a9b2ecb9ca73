// The tensor's factor is that of its own maximum, which the launch before has found in MAXIMA parts.
#pragma once

namespace ws {

__device__ __forceinline__ float tensor_factor(const QuantiseParams& params) {
  const u32* maxima = reinterpret_cast<const u32*>(params.own + 1);
  u32 most = 0;
#pragma unroll
  for (int i = 0; i < MAXIMA / THREADS; i++) most = max(most, maxima[i * THREADS + threadIdx.x]);
  __shared__ u32 of_warps[THREADS / 32];
  most = redux_max(most);
  if (lane_index() == 0) of_warps[warp_index()] = most;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < THREADS / 32; warp++) most = max(most, of_warps[warp]);
  // Kept normal, so that dividing by it neither overflows nor loses digits.
  const float factor = most == 0 ? 1.0f : fmaxf(__fdiv_rn(__uint_as_float(most), 6.0f * 448.0f), 0x1p-126f);
  if (blockIdx.x == 0 && threadIdx.x == 0) params.own[0] = factor;
  return factor;
}

}  // namespace ws
