// One helper an instruction of sm_90a, named after it. Sections are those of the PTX ISA manual, "Instruction Set".
// Addresses called `shared` are in the window of shared::cta.
#pragma once

#include "common/async.cuh"
#include "common/words.cuh"

namespace ws {

// "Asynchronous Warpgroup Level Matrix Multiply-Accumulate": registers and shared memory are ready for wgmma.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int PENDING>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// "setmaxnreg": COUNT registers a thread instead of HELD, by all warps of a warpgroup; more, when others have fewer. The wrong
// one of the two is an illegal instruction.
template <int HELD, int COUNT>
__device__ __forceinline__ void change_registers() {
  if constexpr (COUNT > HELD)
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
  else if constexpr (COUNT < HELD)
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// "stmatrix", transposed: four 8×8 matrices of 16-bit elements; lane 8·i + j gives the address of row j of matrix i.
__device__ __forceinline__ void stmatrix_trans_x4(u32 shared, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(a), "r"(b),
               "r"(c), "r"(d) : "memory");
}

// "stmatrix": the same as they are. Lane 4·g + c has elements 2c, 2c + 1 of row g of each.
__device__ __forceinline__ void stmatrix_x4(u32 shared, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

// Transposed, one matrix; lane j of the first eight gives the address of its row j.
__device__ __forceinline__ void stmatrix_trans_x1(u32 shared, u32 a) {
  asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(shared), "r"(a) : "memory");
}

// "movmatrix", transposed: lane 4·g + c gives elements 2c, 2c+1 of row g and gets those of row g of the transpose.
__device__ __forceinline__ u32 movmatrix_trans(u32 a) {
  u32 result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(a));
  return result;
}

// No instruction: the number, of which the compiler knows nothing.
__device__ __forceinline__ int of_unknown_value(int number) {
  asm volatile("" : "+r"(number));
  return number;
}

// "mov": where the variable `shared_memory` is, by its name. It is given so that the name is declared.
__device__ __forceinline__ u32 mov_shared_memory(const void* variable) {
  u32 shared;
  asm volatile("mov.u32 %0, shared_memory;  // %1" : "=r"(shared) : "l"(variable));
  return shared;
}

}  // namespace ws

// "wgmma.mma_async" and the registers that it adds to, whose names are in the text of the instructions: bodies of what
// wgmma/instruction.cuh declares, for its namespace.
#define WS_DECLARE_SUMS(COUNT, NAMES) \
  __device__ __forceinline__ void declare_sums() { asm volatile(NAMES); }

#define WS_CLEAR_SUMS(WIDTH, MOVES) \
  template <>                       \
  __device__ __forceinline__ void clear_sums<WIDTH>() { asm volatile(MOVES ::: "memory"); }

#define WS_GET_SUMS(WIDTH, MOVES, ...) \
  template <>                          \
  __device__ __forceinline__ void get_sums<WIDTH>(float (&sums)[ACCUMULATORS]) { asm volatile(MOVES : __VA_ARGS__::"memory"); }

#define WS_WGMMA(WIDTH, TYPE, SUMS)                                                               \
  template <>                                                                                     \
  __device__ __forceinline__ void wgmma<WIDTH>(const u32(&a)[4], u64 tokens) {                    \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #WIDTH "k16.f32." #TYPE "." #TYPE " {" SUMS  \
                 "}, {%0,%1,%2,%3}, %4, 1, 1, 1, 0;"                                              \
                 ::"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(tokens) : "memory");           \
  }

// The same for e4m3 values, whose sums are promoted to totals.
#define WS_CLEAR_TOTALS(WIDTH, SUMS_WIDTH, MOVES) \
  template <>                                     \
  __device__ __forceinline__ void clear_sums<WIDTH>() { asm volatile(MOVES ::: "memory"); }

#define WS_PROMOTE_SUMS(WIDTH, FIRST, ADDS) \
  template <>                               \
  __device__ __forceinline__ void promote_sums<WIDTH, FIRST>() { asm volatile(ADDS ::: "memory"); }

// By factors, as k_factors/ says.
#define WS_PROMOTE_SCALED_SUMS(WIDTH, FIRST, ADDS)                                  \
  template <>                                                                       \
  __device__ __forceinline__ void promote_scaled_sums<WIDTH, FIRST>(u32 factors) {  \
    asm volatile(ADDS::"r"(factors) : "memory");                                    \
  }

#define WS_GET_TOTALS(WIDTH, MOVES, ...) WS_GET_SUMS(WIDTH, MOVES, __VA_ARGS__)

#define WS_WGMMA_K32(WIDTH, TYPE, SUMS)          \
  WS_WGMMA_K32_SCALED(WIDTH, TYPE, SUMS, true, 0)  \
  WS_WGMMA_K32_SCALED(WIDTH, TYPE, SUMS, false, 1)

#define WS_WGMMA_K32_SCALED(WIDTH, TYPE, SUMS, ANEW, SCALE_D)                                     \
  template <>                                                                                     \
  __device__ __forceinline__ void wgmma<WIDTH, ANEW>(const u32(&a)[4], u64 tokens) {              \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #WIDTH "k32.f32." #TYPE "." #TYPE " {" SUMS  \
                 "}, {%0,%1,%2,%3}, %4, " #SCALE_D ", 1, 1;"                                      \
                 ::"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(tokens) : "memory");           \
  }

// The same with weights that are K-major in shared memory, too.
#define WS_WGMMA_K32_SHARED(WIDTH, TYPE, SUMS)          \
  WS_WGMMA_K32_SHARED_SCALED(WIDTH, TYPE, SUMS, true, 0)  \
  WS_WGMMA_K32_SHARED_SCALED(WIDTH, TYPE, SUMS, false, 1)

#define WS_WGMMA_K32_SHARED_SCALED(WIDTH, TYPE, SUMS, ANEW, SCALE_D)                              \
  template <>                                                                                     \
  __device__ __forceinline__ void wgmma<WIDTH, ANEW>(u64 weights, u64 tokens) {                   \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #WIDTH "k32.f32." #TYPE "." #TYPE " {" SUMS  \
                 "}, %0, %1, " #SCALE_D ", 1, 1;" ::"l"(weights), "l"(tokens) : "memory");        \
  }
