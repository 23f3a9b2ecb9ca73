// What happens beside the threads of a block: barriers in shared memory, bulk copies, clusters, dependent launches. One helper
// an instruction of sm_90 and later, named after it. Sections are those of the PTX ISA manual, "Instruction Set". Addresses
// called `shared` are in the window of shared::cta; `barrier` is the address of an mbarrier.
#pragma once

#include "common/ptx.cuh"

namespace ws {

// "cp.async.mbarrier.arrive": this thread arrives when all that it has asked for by cp.async has come.
__device__ __forceinline__ void cp_async_arrive(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// What cuTensorMapEncodeTiled made on the host.
struct alignas(64) TensorMap {
  u64 words[16];
};

// "Parallel Synchronization: elect.sync": true in one lane of a converged warp. (With `lane == 0` instead, ptxas cannot
// see that one lane is active and puts a loop around every bulk copy, some 330 cycles each.)
__device__ __forceinline__ bool elect_one() {
  u32 elected;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(elected));
  return elected;
}

// "mbarrier.init": a phase completes after `arrivals` arrivals and all bytes that were announced.
__device__ __forceinline__ void mbarrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// An arrival that announces bytes of copies to come.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// The same at a barrier of any block of the cluster: `remote` is its address in the window of shared::cluster. Whoever announces
// has written nothing: with `.release` the thread would wait for all its memory accesses.
__device__ __forceinline__ void mbarrier_arrive_expect_tx_cluster(u32 remote, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [%0], %1;" ::"r"(remote), "r"(bytes)
               : "memory");
}

// An arrival there, which tells of what fences before it have ordered, and of nothing else.
__device__ __forceinline__ void mbarrier_arrive_cluster(u32 remote) {
  asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
}

// An arrival at the same barrier of another block of the cluster.
__device__ __forceinline__ void mbarrier_arrive_remote(u32 barrier, u32 rank) {
  asm volatile("{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1; "
               "mbarrier.arrive.shared::cluster.b64 _, [remote]; }" ::"r"(barrier), "r"(rank) : "memory");
}

__device__ __forceinline__ bool mbarrier_test_wait(u32 barrier, u32 parity) {
  u32 done;
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  return done;
}

// The same, but the thread may be suspended for a while.
__device__ __forceinline__ bool mbarrier_try_wait(u32 barrier, u32 parity) {
  u32 done;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  return done;
}

// The same for a barrier at which st.async counts: what that writes is released at the scope of the cluster.
__device__ __forceinline__ bool mbarrier_try_wait_cluster(u32 barrier, u32 parity) {
  u32 done;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  return done;
}

// The same, for all blocks of the cluster, and orders nothing: a fence behind it may.
__device__ __forceinline__ bool mbarrier_try_wait_relaxed_cluster(u32 barrier, u32 parity) {
  u32 done;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  return done;
}

// Tries until it is done. A wait of many seconds is a deadlock: it ends as a fault (stuck/, which the kernel includes before).
template <class Try>
__device__ __forceinline__ void spin(Try is_done) {
#pragma unroll 1
  for (u32 tries = 0; !is_done(); tries++)
    stuck_if(tries > 1u << 24);
}

// Waits until the phase of this parity has completed; most often it has, and a jump past the loop is faster then.
__device__ __forceinline__ void mbarrier_wait(u32 barrier, u32 parity) {
  if (mbarrier_try_wait(barrier, parity)) return;
  spin([&] { return mbarrier_try_wait(barrier, parity); });
}
__device__ __forceinline__ void mbarrier_wait_cluster(u32 barrier, u32 parity) {
  spin([&] { return mbarrier_try_wait_cluster(barrier, parity); });
}

__device__ __forceinline__ void mbarrier_wait_relaxed_cluster(u32 barrier, u32 parity) {
  if (mbarrier_try_wait_relaxed_cluster(barrier, parity)) return;
  spin([&] { return mbarrier_try_wait_relaxed_cluster(barrier, parity); });
}

// "%clock": cycles of this SM, modulo 2^32.
__device__ __forceinline__ u32 clock() {
  u32 now;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(now));
  return now;
}

// "cp.async.bulk": global to shared memory; its bytes count at `barrier`. Addresses and size are multiples of 16.
__device__ __forceinline__ void bulk_load(u32 shared, const void* global, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
               "l"(global), "r"(bytes), "r"(barrier) : "memory");
}

// "cp.async.bulk.prefetch": global memory to the L2 cache. Address and size are multiples of 16.
__device__ __forceinline__ void bulk_prefetch(const void* global, u32 bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
}

// "cp.async.bulk": shared to global memory, in this thread's bulk group.
__device__ __forceinline__ void bulk_store(void* global, u32 shared, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global), "r"(shared), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void bulk_commit_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until this thread's bulk stores have read shared memory.
__device__ __forceinline__ void bulk_wait_group_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

// Waits until this thread's bulk stores are done.
__device__ __forceinline__ void bulk_wait_group() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// "cp.async.bulk.tensor": a box of a 3-dimensional tensor; what lies outside of the tensor becomes zeros, and counts.
__device__ __forceinline__ void tensor_load(u32 shared, const TensorMap& map, int x, int y, int z, u32 barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
               "[%2];" ::"r"(shared), "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z) : "memory");
}

// The same of a 2-dimensional tensor.
__device__ __forceinline__ void tensor_load_2d(u32 shared, const TensorMap& map, int x, int y, u32 barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
                   shared),
               "l"(&map), "r"(barrier), "r"(x), "r"(y) : "memory");
}

// A box of a 3-dimensional tensor into every block of the cluster whose bit is set in `ranks`, at the same address, counting at its barrier.
__device__ __forceinline__ void tensor_load_multicast(u32 shared, const TensorMap& map, int x, int y, int z,
                                                      u32 barrier, u16 ranks) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
               "[%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared), "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z),
               "h"(ranks) : "memory");
}

__device__ __forceinline__ void prefetch_tensor_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// "membar/fence: fence.proxy.async": what this thread wrote to shared memory is seen by bulk copies and wgmma.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// "membar/fence: fence.release, fence.acquire" of shared memory alone. What a thread knows to be written in its block before the first
// is seen behind the second by who waited, in any block of the cluster, for an arrival behind the first. Without the restriction both
// would be about global memory, too: MEMBAR.ALL.GPU, and L1 emptied.
__device__ __forceinline__ void fence_release_shared() {
  asm volatile("fence.release.sync_restrict::shared::cta.cluster;" ::: "memory");
}
__device__ __forceinline__ void fence_acquire_shared() {
  asm volatile("fence.acquire.sync_restrict::shared::cluster.cluster;" ::: "memory");
}

// "barrier.cluster": of all threads of all blocks of the cluster. What others are to see after `wait` are barriers only, and
// fence_mbarrier_init has released those: with `.release` every thread would wait for all its memory accesses.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

__device__ __forceinline__ u32 cluster_rank() {
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// "mapa": the address, in the window of shared::cluster, of the same place in another block of the cluster.
__device__ __forceinline__ u32 map_shared_rank(u32 shared, u32 rank) {
  u32 remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared), "r"(rank));
  return remote;
}

// "st.async": 16 bytes into another block's shared memory, which count at `barrier` there.
__device__ __forceinline__ void st_async(u32 remote, u32 barrier, float a, float b, float c, float d) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%2, %3, %4, %5}, [%1];" ::"r"(remote),
               "r"(barrier), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}

// "Parallel Synchronization: griddepcontrol" (programmatic dependent launch).
//
// Kernels that depend on this one may start as soon as every block has said so, or ended.
__device__ __forceinline__ void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// Waits until the kernels this one depends on are done and their writes are visible. Nothing, if it was launched plainly.
__device__ __forceinline__ void wait_for_dependencies() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

}  // namespace ws
