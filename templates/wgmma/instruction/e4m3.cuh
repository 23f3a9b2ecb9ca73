// The matrix instruction on e4m3 values, the sums that it adds to, and those that are kept.
//
// An instruction adds 32 products to a sum, of which it keeps some 14 bits. So it begins anew every 128 elements along K, and
// what these gave is added to totals in f32. Both are registers that PTX declares, as in half.cuh.
#pragma once

namespace ws {

// Once in a kernel, before anything else here.
__device__ __forceinline__ void declare_sums();

// Totals, and sums that have not been promoted.
template <int WIDTH>
__device__ __forceinline__ void clear_sums();

// The first WIDTH / 2 of the totals, which are those of WIDTH tokens.
template <int WIDTH>
__device__ __forceinline__ void get_sums(float (&sums)[TOKENS / 2]);

// Adds the sums to the totals. No instruction that adds to them is under way.
template <int WIDTH>
__device__ __forceinline__ void promote_sums();

// "wgmma.mma_async": sums += a·tokens for 32 along K and WIDTH tokens, or sums = a·tokens if they begin anew (scale-d); a from
// registers, tokens K-major in shared memory. Imm-scale-a and imm-scale-b are 1.
template <int WIDTH, bool ANEW>
__device__ __forceinline__ void wgmma(const u32 (&a)[4], u64 tokens);

// The totals of WIDTH tokens, and zeros beyond.
template <int WIDTH>
__device__ __forceinline__ void read_sums(float (&sums)[TOKENS / 2]) {
  get_sums<WIDTH>(sums);
#pragma unroll
  for (int i = WIDTH / 2; i < TOKENS / 2; i++) sums[i] = 0.f;
}

// A K block, two steps of 32, as one group.
template <int WIDTH, bool ANEW>
__device__ __forceinline__ void multiply(const u32 (&a)[2][4], u64 tokens) {
  wgmma_fence();
  wgmma<WIDTH, ANEW>(a[0], tokens);
  wgmma<WIDTH, false>(a[1], tokens + DESCRIPTOR_STEP);
  wgmma_commit_group();
}

}  // namespace ws
