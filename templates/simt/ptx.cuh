// One helper an instruction, named after it. Sections are those of the PTX ISA manual, "Instruction Set". Clusters and
// dependent launches are of sm_90 and later (common/async.cuh); before, a block is alone and a launch waits by itself.
#pragma once

#include "common/ptx.cuh"

#if __CUDA_ARCH__ >= 900
#include "common/stuck/trap.cuh"

#include "common/async.cuh"
#endif

namespace ws {

__device__ __forceinline__ int lane_index() { return threadIdx.x % 32; }
__device__ __forceinline__ int warp_index() { return threadIdx.x / 32; }

// "redux.sync": over the 32 lanes of a warp.
__device__ __forceinline__ u32 redux_max(u32 value) {
  u32 result;
  asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(result) : "r"(value));
  return result;
}

__device__ __forceinline__ u32 redux_min(u32 value) {
  u32 result;
  asm volatile("redux.sync.min.u32 %0, %1, 0xffffffff;" : "=r"(result) : "r"(value));
  return result;
}

__device__ __forceinline__ int redux_add(int value) {
  int result;
  asm volatile("redux.sync.add.s32 %0, %1, 0xffffffff;" : "=r"(result) : "r"(value));
  return result;
}

#if __CUDA_ARCH__ < 900

__device__ __forceinline__ void launch_dependents() {}
__device__ __forceinline__ void wait_for_dependencies() {}
__device__ __forceinline__ u32 cluster_rank() { return 0; }

#endif

}  // namespace ws
