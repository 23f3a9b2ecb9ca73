// The matrix instruction on e4m3 values, the sums that it adds to, and those that are kept.
//
// An instruction adds 32 products to a sum, of which it keeps some 14 bits. So it begins anew every 128 elements along K, and
// what these gave is added to totals in f32 (k_factors/), which are the sums that are kept.
#pragma once

#include "wgmma/instruction/sums.cuh"

namespace ws {

// "wgmma.mma_async": sums += a·tokens for 32 along K and WIDTH tokens, or sums = a·tokens if they begin anew (scale-d); a from
// registers, tokens K-major in shared memory. Imm-scale-a and imm-scale-b are 1.
template <int WIDTH, bool ANEW>
__device__ __forceinline__ void wgmma(const u32 (&a)[4], u64 tokens);
// The same with weights in shared memory, too.
template <int WIDTH, bool ANEW>
__device__ __forceinline__ void wgmma(u64 weights, u64 tokens);

// A K block, two steps of 32, as one group.
template <int WIDTH, bool ANEW>
__device__ __forceinline__ void multiply(const u32 (&a)[2][4], u64 tokens) {
  wgmma_fence();
  wgmma<WIDTH, ANEW>(a[0], tokens);
  wgmma<WIDTH, false>(a[1], tokens + DESCRIPTOR_STEP);
  wgmma_commit_group();
}

// Two K blocks, four steps of 32, as one group whose sums begin anew.
template <int WIDTH>
__device__ __forceinline__ void multiply_line(const u32 (&a)[2][2][4], u64 tokens) {
  wgmma_fence();
  wgmma<WIDTH, true>(a[0][0], tokens);
  wgmma<WIDTH, false>(a[0][1], tokens + DESCRIPTOR_STEP);
  wgmma<WIDTH, false>(a[1][0], tokens + 2 * DESCRIPTOR_STEP);
  wgmma<WIDTH, false>(a[1][1], tokens + 3 * DESCRIPTOR_STEP);
  wgmma_commit_group();
}

// A line of two K blocks, or of one if no more are left, two steps each, as one group whose sums begin anew.
template <int WIDTH>
__device__ __forceinline__ void multiply_decoded(u64 weights, u64 tokens, int blocks) {
  wgmma_fence();
  wgmma<WIDTH, true>(weights, tokens);
  wgmma<WIDTH, false>(weights + DESCRIPTOR_STEP, tokens + DESCRIPTOR_STEP);
  if (K_BLOCKS_ALL % 2 == 0 || blocks > 1) {
    wgmma<WIDTH, false>(weights + 2 * DESCRIPTOR_STEP, tokens + 2 * DESCRIPTOR_STEP);
    wgmma<WIDTH, false>(weights + 3 * DESCRIPTOR_STEP, tokens + 3 * DESCRIPTOR_STEP);
  }
  wgmma_commit_group();
}

// Behind the last stage.
template <int WIDTH>
__device__ __forceinline__ void finish_sums(const LineFactors& factors) {
  wgmma_wait_group<0>();
  factors.template promote<WIDTH / SUM_PARTS, WIDTH - WIDTH / SUM_PARTS>();
}

}  // namespace ws
