// The matrix instruction and the sums that it adds to.
//
// The sums are registers that PTX declares, not variables: as operands of every instruction, up to 128 of them, they would
// take the compiler 5 ms a time. What names them is text with as many names as a width has sums; src/path/wgmma/instruction.rs
// writes it behind this file, for each width that tiles are multiplied in, and wgmma/ptx.cuh has what is around it.
#pragma once

namespace ws {

// Once in a kernel, before anything else here.
__device__ __forceinline__ void declare_sums();

template <int WIDTH>
__device__ __forceinline__ void clear_sums();

// The first WIDTH / 2 of `sums`, which are those of WIDTH tokens.
template <int WIDTH>
__device__ __forceinline__ void get_sums(float (&sums)[TOKENS / 2]);

// "wgmma.mma_async": sums += a·tokens for 16 along K and WIDTH tokens; a from registers, tokens K-major in shared memory.
// Scale-d, imm-scale-a and imm-scale-b are 1.
template <int WIDTH>
__device__ __forceinline__ void wgmma(const u32 (&a)[4], u64 tokens);

// The sums of WIDTH tokens, and zeros beyond.
template <int WIDTH>
__device__ __forceinline__ void read_sums(float (&sums)[TOKENS / 2]) {
  get_sums<WIDTH>(sums);
#pragma unroll
  for (int i = WIDTH / 2; i < TOKENS / 2; i++) sums[i] = 0.f;
}

// COUNT steps of 16 along K as one group.
template <int WIDTH, int COUNT>
__device__ __forceinline__ void multiply(const u32 (&a)[COUNT][4], u64 tokens) {
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < COUNT; step++) wgmma<WIDTH>(a[step], tokens + step * DESCRIPTOR_STEP);
  wgmma_commit_group();
}

}  // namespace ws
