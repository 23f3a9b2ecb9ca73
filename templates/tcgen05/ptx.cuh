// One helper an instruction of sm_100a and sm_103a, named after it: PTX ISA, "TensorCore 5th Generation Family Instructions".
// `PAIR` is cta_group::2, two blocks of a cluster that multiply together. An address in tensor memory is lane · 2^16 + column.
#pragma once

#include "common/stuck/trap.cuh"
#include "common/async.cuh"

// An instruction: its text before the cta_group, then what is behind it and its operands.
#define WS_CTA_GROUP(BEFORE, ...)                      \
  do {                                                 \
    if constexpr (PAIR)                                \
      asm volatile(BEFORE "cta_group::2" __VA_ARGS__); \
    else                                               \
      asm volatile(BEFORE "cta_group::1" __VA_ARGS__); \
  } while (false)

namespace ws {

// "tcgen05.alloc": by a whole warp; the address of so many columns, a power of two from 32 on, is written to shared memory.
template <bool PAIR>
__device__ __forceinline__ void tcgen05_alloc(u32 shared, u32 columns) {
  WS_CTA_GROUP("tcgen05.alloc.", ".sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(shared), "r"(columns) : "memory");
}

// "tcgen05.relinquish_alloc_permit": this block allocates no more.
template <bool PAIR>
__device__ __forceinline__ void tcgen05_relinquish_alloc_permit() {
  WS_CTA_GROUP("tcgen05.relinquish_alloc_permit.", ".sync.aligned;" ::: "memory");
}

// "tcgen05.dealloc": what was allocated, by a whole warp.
template <bool PAIR>
__device__ __forceinline__ void tcgen05_dealloc(u32 address, u32 columns) {
  WS_CTA_GROUP("tcgen05.dealloc.", ".sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns) : "memory");
}

// "tcgen05.cp": 32 rows of 16 bytes to four columns of each of the four quarters of the lanes.
template <bool PAIR>
__device__ __forceinline__ void tcgen05_cp_32x128b_warpx4(u32 to, u64 descriptor) {
  WS_CTA_GROUP("tcgen05.cp.", ".32x128b.warpx4 [%0], %1;" ::"r"(to), "l"(descriptor) : "memory");
}

// What becomes of the rows' operand in the cache before the tensor cores. (The words of `.collector::a`.)
enum class Collector { DISCARD, FILL, LAST_USE };

// "tcgen05.mma" of e2m1 operands with an e4m3 scale for 16 of K: d = a·bᵀ, or d += a·bᵀ, over 64 of K.
template <bool PAIR, Collector COLLECTOR>
__device__ __forceinline__ void tcgen05_mma_mxf4nvf4(u32 d, u64 a, u64 b, u32 instruction, u32 scales_a, u32 scales_b,
                                                     bool accumulate) {
#define WS_MMA(KEEP)                                                                                      \
  WS_CTA_GROUP("{ .reg .pred p; setp.ne.u32 p, %6, 0; tcgen05.mma.",                                      \
               ".kind::mxf4nvf4.block_scale.block16" KEEP " [%0], %1, %2, %3, [%4], [%5], p; }" ::"r"(d), \
               "l"(a), "l"(b), "r"(instruction), "r"(scales_a), "r"(scales_b), "r"(u32(accumulate)) : "memory")
  if constexpr (COLLECTOR == Collector::FILL) WS_MMA(".collector::a::fill");
  if constexpr (COLLECTOR == Collector::LAST_USE) WS_MMA(".collector::a::lastuse");
  if constexpr (COLLECTOR == Collector::DISCARD) WS_MMA("");
#undef WS_MMA
}

// "tcgen05.commit": an arrival at `barrier` when all that this thread has asked for is done; of a pair, at the same barrier of
// both blocks.
template <bool PAIR>
__device__ __forceinline__ void tcgen05_commit(u32 barrier) {
  if constexpr (PAIR)
    asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(
                     barrier),
                 "h"(u16(3)) : "memory");
  else
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier) : "memory");
}

// "tcgen05.ld": lane t of a warp gets 16 columns of lane t of its quarter. They are there after tcgen05_wait_ld.
__device__ __forceinline__ void tcgen05_ld_32x32b_x16(u32 (&r)[16], u32 from) {
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x16.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
               "[%16];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]), "=r"(r[4]), "=r"(r[5]), "=r"(r[6]), "=r"(r[7]), "=r"(r[8]),
                 "=r"(r[9]), "=r"(r[10]), "=r"(r[11]), "=r"(r[12]), "=r"(r[13]), "=r"(r[14]), "=r"(r[15])
               : "r"(from)
               : "memory");
}

// "tcgen05.wait::ld": for all loads of this warp. The registers are named, so that nothing reads them before.
template <int COUNT>
__device__ __forceinline__ void tcgen05_wait_ld(u32 (&loads)[COUNT][16]) {
  asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
#pragma unroll
  for (auto& r : loads)
    asm volatile(""
                 : "+r"(r[0]), "+r"(r[1]), "+r"(r[2]), "+r"(r[3]), "+r"(r[4]), "+r"(r[5]), "+r"(r[6]), "+r"(r[7]), "+r"(r[8]),
                   "+r"(r[9]), "+r"(r[10]), "+r"(r[11]), "+r"(r[12]), "+r"(r[13]), "+r"(r[14]), "+r"(r[15]));
}

// "tcgen05.fence": orders this thread's tcgen05 instructions before what tells other threads, or behind what they have told.
__device__ __forceinline__ void tcgen05_fence_before_thread_sync() {
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}
__device__ __forceinline__ void tcgen05_fence_after_thread_sync() {
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

// "cp.async.bulk.tensor" with cta_group::2: the barrier may be that of the other block of the pair.
__device__ __forceinline__ void tensor_load_2d_pair(u32 shared, const TensorMap& map, int x, int y, u32 remote) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.cta_group::2 [%0], [%1, {%3, %4}], "
               "[%2];" ::"r"(shared), "l"(&map), "r"(remote), "r"(x), "r"(y) : "memory");
}

// The same into every block of the cluster whose bit is set in `ranks`, at the same address. What arrives in a block counts at the
// barrier of that block of its pair which has the parity of `remote`'s.
__device__ __forceinline__ void tensor_load_2d_pair_multicast(u32 shared, const TensorMap& map, int x, int y, u32 remote, u16 ranks) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.cta_group::2 [%0], "
               "[%1, {%3, %4}], [%2], %5;" ::"r"(shared), "l"(&map), "r"(remote), "r"(x), "r"(y), "h"(ranks) : "memory");
}

}  // namespace ws

#undef WS_CTA_GROUP
