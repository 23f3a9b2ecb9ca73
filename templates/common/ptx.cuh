// One helper an instruction, named after it. Sections are those of the PTX ISA manual, "Instruction Set".
#pragma once

namespace ws {

// "Data Movement: cp.async". Copies 16 bytes from global to shared memory, past L1; where `valid` is false it reads
// nothing and writes zeros (src-size 0).
__device__ __forceinline__ void cp_async_16(u32 shared, const void* global, bool valid) {
  const u32 bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes) : "memory");
}

// The same, if it is wanted at all; zeros where `zeros` is not 0. Both are predicates, not branches.
__device__ __forceinline__ void cp_async_16_if(bool wanted, u32 shared, const void* global, u32 zeros) {
  asm volatile(
      "{ .reg .pred p, q; setp.ne.u32 p, %2, 0; setp.ne.u32 q, %3, 0; @q cp.async.cg.shared.global [%0], [%1], 16, p; }" ::"r"(
          shared),
      "l"(global), "r"(zeros), "r"(u32(wanted))
      : "memory");
}

// The same for 4 bytes (`.ca`: `.cg` exists for 16 bytes only).
__device__ __forceinline__ void cp_async_4(u32 shared, const void* global, bool valid) {
  const u32 bytes = valid ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(global), "r"(bytes) : "memory");
}

// "prefetch": the line of an address into the L2 cache. Nothing is read; what is written there later is seen all the same.
__device__ __forceinline__ void prefetch_line(const void* global) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}

// "Data Movement: ld.relaxed" at the scope of the device: what is in the L2 cache, not what L1 may still have.
__device__ __forceinline__ int ld_relaxed_gpu(const int* global) {
  int value;
  asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(global) : "memory");
  return value;
}

// The same for 16 bytes, of which each four are seen as one.
__device__ __forceinline__ uint4 ld_relaxed_gpu_16(const void* global) {
  uint4 value;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(global)
               : "memory");
  return value;
}

// "st.relaxed" at the scope of the device.
__device__ __forceinline__ void st_relaxed_gpu(u32* global, u32 value) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(global), "r"(value) : "memory");
}

// The same with what was written before it was added to.
__device__ __forceinline__ int ld_acquire_gpu(const int* global) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(global) : "memory");
  return value;
}

// "red.release" at the scope of the device: an addition that comes behind all that the block wrote before its last barrier.
__device__ __forceinline__ void add_release_gpu(int* global, int value) {
  asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(global), "r"(value) : "memory");
}

// "cp.async.commit_group": the copies this thread started since the last one form a group.
__device__ __forceinline__ void cp_async_commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// "cp.async.wait_group": waits until at most PENDING groups of this thread are under way.
template <int PENDING>
__device__ __forceinline__ void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// "Parallel Synchronization: bar.sync": the first THREADS threads of a block that use the same `id`.
template <int THREADS>
__device__ __forceinline__ void named_barrier_sync(int id) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(THREADS) : "memory");
}

// What was written before is seen by those who wait there.
template <int THREADS>
__device__ __forceinline__ void named_barrier_arrive(int id) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(THREADS) : "memory");
}

// "Data Movement: prmt", default mode: result byte i is byte `selector` nibble i (0…7) of {high, low}; a nibble with
// bit 3 set replicates that byte's sign bit eight times.
__device__ __forceinline__ u32 prmt(u32 low, u32 high, u32 selector) {
  u32 result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
  return result;
}

// "Half Precision: mul": two f16 products. Subnormals are kept.
__device__ __forceinline__ u32 mul_f16x2(u32 a, u32 b) {
  u32 result;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}

#if __CUDA_ARCH__ >= 860
enum : bool { HAS_MAX_ABS = true };
#else
enum : bool { HAS_MAX_ABS = false };
#endif

// "Half Precision: max.xorsign.abs": the larger of two magnitudes, twice, in the lower 15 bits of each; of a number and NaN the number. Where
// there is one.
__device__ __forceinline__ u32 max_abs_f16x2(u32 a, u32 b) {
  u32 result;
  asm("max.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}

__device__ __forceinline__ u32 max_abs_bf16x2(u32 a, u32 b) {
  u32 result;
  asm("max.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}

// "Half Precision: fma" with −0 as addend: two bf16 products on every target from sm_80 on (mul.bf16x2 needs sm_90).
__device__ __forceinline__ u32 mul_bf16x2(u32 a, u32 b) {
  u32 result;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(0x80008000u));
  return result;
}

// "Data Conversion: cvt": two fp32 values rounded to nearest even, the first into the low half.
__device__ __forceinline__ u32 cvt_f16x2(float low, float high) {
  u32 result;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
}

__device__ __forceinline__ u32 cvt_bf16x2(float low, float high) {
  u32 result;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  return result;
}

// The other way, exactly.
__device__ __forceinline__ float cvt_f32_f16(u16 half) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(half));
  return result;
}

// "Floating Point: ex2": 2^x, relative error at most 2^-22.
__device__ __forceinline__ float ex2_approx(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// "Floating Point: div.approx": at most 2 ulp for divisors up to 2^126, and 0 for larger ones.
__device__ __forceinline__ float div_approx(float a, float b) {
  float result;
  asm("div.approx.ftz.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

// "Floating Point: rcp.approx": at most 1 ulp; of ∞ it is 0.
__device__ __forceinline__ float rcp_approx(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// "Floating Point: min, max" with .NaN: NaN where either is.
__device__ __forceinline__ float min_nan(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

__device__ __forceinline__ float max_nan(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

// "Matrix multiply-accumulate: mma.m16n8k16": d += a·b with fp32 accumulation. Lane = 4·g + c holds of
//   a: row g (a0, a2) and row g + 8 (a1, a3), k = 2c, 2c+1 (a0, a1) and k = 2c+8, 2c+9 (a2, a3)
//   b: column g, k = 2c, 2c+1 (b0) and 2c+8, 2c+9 (b1)
//   d: row g (d0, d1) and row g + 8 (d2, d3), columns 2c and 2c+1
__device__ __forceinline__ void mma_m16n8k16_f16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

#if __CUDA_ARCH__ >= 890
enum : bool { HAS_CVT_E4M3 = true };
#else
enum : bool { HAS_CVT_E4M3 = false };
#endif

// "Data Conversion: cvt": two fp32 values to e4m3, nearest even, at most ±448, the first into the low byte. Where there is one.
__device__ __forceinline__ u32 cvt_e4m3x2(float low, float high) {
  u16 result;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(result) : "f"(high), "f"(low));
  return result;
}

// The other way, exactly: two of the four e4m3 values in a word, its low ones or its high ones. Where there is the one above.
template <int HALF>
__device__ __forceinline__ u32 cvt_f16x2_e4m3x2(u32 word) {
  u32 result;
  if constexpr (HALF == 0)
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, low; }" : "=r"(result) : "r"(word));
  else
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, high; }" : "=r"(result) : "r"(word));
  return result;
}

}  // namespace ws
