// Words of shared memory and what is done with their halves. One helper an instruction, named after it. Sections are those of the
// PTX ISA manual, "Instruction Set". Addresses called `shared` are in the window of shared::cta.
#pragma once

namespace ws {

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

__device__ __forceinline__ u32 ld_shared_2(u32 shared) {
  u16 v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(shared));
  return v;
}

__device__ __forceinline__ u32 ld_shared_1(u32 shared) {
  u32 v;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(shared));
  return v;
}

__device__ __forceinline__ void st_shared_4(u32 shared, u32 a) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(shared), "r"(a) : "memory");
}

__device__ __forceinline__ void st_shared_8(u32 shared, u32 a, u32 b) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(shared), "r"(a), "r"(b) : "memory");
}

__device__ __forceinline__ void st_shared_16(u32 shared, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// "shf.l.wrap": the word rotated to the left.
template <int BITS>
__device__ __forceinline__ u32 rotate_left(u32 word) { return __funnelshift_l(word, word, BITS); }

// "lop3": (a & MASK) | b in one instruction; of the C expression ptxas makes two.
template <u32 MASK>
__device__ __forceinline__ u32 and_or(u32 a, u32 b) {
  u32 result;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(result) : "r"(a), "n"(MASK), "r"(b));
  return result;
}

// "mov" of halves: both halves of a register the low or the high half of `word`; folded into a multiplication.
template <int HALF>
__device__ __forceinline__ u32 both(u32 word) {
  u32 result;
  if constexpr (HALF == 0)
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; mov.b32 %0, {low, low}; }" : "=r"(result) : "r"(word));
  else
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; mov.b32 %0, {high, high}; }" : "=r"(result) : "r"(word));
  return result;
}

// "Half Precision: mul": two bf16 products. Subnormals are kept.
__device__ __forceinline__ u32 mul_rn_bf16x2(u32 a, u32 b) {
  u32 result;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}

}  // namespace ws
