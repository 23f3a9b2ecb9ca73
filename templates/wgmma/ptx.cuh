// One helper an instruction of sm_90a, named after it. Sections are those of the PTX ISA manual, "Instruction Set".
// Addresses called `shared` are in the window of shared::cta.
#pragma once

#include "common/async.cuh"

namespace ws {

// "Asynchronous Warpgroup Level Matrix Multiply-Accumulate": registers and shared memory are ready for wgmma.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int PENDING>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

__device__ __forceinline__ uint4 ld_shared_16(u32 shared) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(shared));
  return v;
}

__device__ __forceinline__ uint2 ld_shared_8(u32 shared) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(shared));
  return v;
}

__device__ __forceinline__ u32 ld_shared_4(u32 shared) {
  u32 v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(shared));
  return v;
}

__device__ __forceinline__ void st_shared_16(u32 shared, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// "stmatrix", transposed: four 8×8 matrices of 16-bit elements; lane 8·i + j gives the address of row j of matrix i.
__device__ __forceinline__ void stmatrix_trans_x4(u32 shared, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(a), "r"(b),
               "r"(c), "r"(d) : "memory");
}

// The same for one matrix; lane j of the first eight gives the address of its row j.
__device__ __forceinline__ void stmatrix_trans_x1(u32 shared, u32 a) {
  asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(shared), "r"(a) : "memory");
}

// "movmatrix", transposed: lane 4·g + c gives elements 2c, 2c+1 of row g and gets those of row g of the transpose.
__device__ __forceinline__ u32 movmatrix_trans(u32 a) {
  u32 result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(a));
  return result;
}

// "shf.l.wrap": the word rotated to the left.
template <int BITS>
__device__ __forceinline__ u32 rotate_left(u32 word) { return __funnelshift_l(word, word, BITS); }

}  // namespace ws
