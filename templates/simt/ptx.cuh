// One helper an instruction, named after it. Sections are those of the PTX ISA manual, "Instruction Set". Clusters and
// dependent launches are of sm_90 and later; before, a block is alone and a launch waits by itself.
#pragma once

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

// "Data Conversion: cvt": exact.
__device__ __forceinline__ float widened_f16(u16 half) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(half));
  return result;
}

#if __CUDA_ARCH__ >= 900

// "Parallel Synchronization: griddepcontrol". Kernels that depend on this one may start as soon as every block has said so,
// or ended.
__device__ __forceinline__ void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// Waits until the kernels this one depends on are done and their writes are visible. Nothing, if it was launched plainly.
__device__ __forceinline__ void wait_for_dependencies() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

__device__ __forceinline__ u32 cluster_rank() {
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ u32 cluster_blocks() {
  u32 blocks;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
  return blocks;
}

// "barrier.cluster": of all threads of all blocks of the cluster. What was written to shared memory before is seen after it.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }

// "mapa", "ld.shared::cluster": a word at the same place in another block of the cluster.
__device__ __forceinline__ u32 cluster_load(const u32* shared, u32 rank) {
  u32 value;
  asm volatile("{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %1, %2; ld.shared::cluster.u32 %0, [remote]; }"
               : "=r"(value)
               : "r"(static_cast<u32>(__cvta_generic_to_shared(shared))), "r"(rank)
               : "memory");
  return value;
}

#else

__device__ __forceinline__ void launch_dependents() {}
__device__ __forceinline__ void wait_for_dependencies() {}
__device__ __forceinline__ u32 cluster_rank() { return 0; }
__device__ __forceinline__ u32 cluster_blocks() { return 1; }
__device__ __forceinline__ void cluster_arrive() { __syncthreads(); }
__device__ __forceinline__ void cluster_wait() {}
__device__ __forceinline__ u32 cluster_load(const u32* shared, u32) { return *shared; }

#endif

}  // namespace ws
