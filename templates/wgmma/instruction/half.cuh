// The matrix instruction on 16-bit values.
#pragma once

#include "wgmma/instruction/sums.cuh"

namespace ws {

// "wgmma.mma_async": sums += a·tokens for 16 along K and WIDTH tokens; a from registers, tokens K-major in shared memory.
// Scale-d, imm-scale-a and imm-scale-b are 1.
template <int WIDTH>
__device__ __forceinline__ void wgmma(const u32 (&a)[4], u64 tokens);

// COUNT steps of 16 along K as one group.
template <int WIDTH, int COUNT>
__device__ __forceinline__ void multiply(const u32 (&a)[COUNT][4], u64 tokens) {
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < COUNT; step++) wgmma<WIDTH>(a[step], tokens + step * DESCRIPTOR_STEP);
  wgmma_commit_group();
}

// Behind the last stage.
template <int WIDTH>
__device__ __forceinline__ void finish_sums(const LineFactors&) {
  wgmma_wait_group<0>();
}

}  // namespace ws
