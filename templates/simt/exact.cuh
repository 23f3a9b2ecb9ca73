// Functions of f32 as a stated sequence of IEEE operations, each rounded to nearest even, so that a host computes the same
// bits (crates/warpsmith-tune/src/oracle/route.rs does).
#pragma once

namespace ws {

inline constexpr float LARGEST = 3.402823466e38f;

// NaN becomes the smallest finite number, infinities the largest and the smallest, -0 becomes 0.
__device__ __forceinline__ float settled(float x) {
  return __fadd_rn(fminf(fmaxf(x, -LARGEST), LARGEST), 0.0f);
}

// Keys are in the order of what they are of, and above 0.
__device__ __forceinline__ u32 key_of(float settled) {
  const u32 bits = __float_as_uint(settled);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float value_of(u32 key) {
  return __uint_as_float((key >> 31) != 0 ? key & 0x7FFFFFFFu : ~key);
}

// Of settled 16-bit numbers, in 19 bits: no two keys differ in the low 13 bits only.
__device__ __forceinline__ u32 short_key_of(u32 key) { return key >> 13; }

// exp(-x) for x >= 0; 0 from 87 on. With n = round(-x / ln 2) and f = -x - n ln 2, ln 2 in two parts, it is 2^n exp(f), and
// exp(f) a polynomial (the Cephes library's for f32).
__device__ __forceinline__ float exp_of_minus(float x) {
  constexpr float ROUNDER = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, in the low bits of the sum
  const float sum = __fmaf_rn(x, -1.44269504f, ROUNDER);
  const float n = __fsub_rn(sum, ROUNDER);
  const float f = __fmaf_rn(n, 2.12194440e-4f, __fmaf_rn(n, -0.693359375f, -x));
  float p = __fmaf_rn(1.9875691500e-4f, f, 1.3981999507e-3f);
  p = __fmaf_rn(p, f, 8.3334519073e-3f);
  p = __fmaf_rn(p, f, 4.1665795894e-2f);
  p = __fmaf_rn(p, f, 1.6666665459e-1f);
  p = __fmaf_rn(p, f, 5.0000001201e-1f);
  p = __fadd_rn(__fmaf_rn(p, __fmul_rn(f, f), f), 1.0f);
  const float scaled = __uint_as_float(__float_as_uint(p) + (__float_as_uint(sum) << 23));
  return x < 87.0f ? scaled : 0.0f;
}

// 1 / (1 + exp(-x)). The reciprocal of 1…2 is a parabola (relative error 1/99) and two steps of Newton's.
__device__ __forceinline__ float sigmoid(float x) {
  const float e = exp_of_minus(fabsf(x)), d = __fadd_rn(1.0f, e);
  float r = __fmaf_rn(__fmaf_rn(0.32323232f, d, -1.4545455f), d, 2.1212122f);
  r = __fmaf_rn(r, __fmaf_rn(-d, r, 1.0f), r);
  r = __fmaf_rn(r, __fmaf_rn(-d, r, 1.0f), r);
  return x >= 0.0f ? r : __fmul_rn(e, r);
}

// The sum over the lanes of a warp, the same in all of them.
__device__ __forceinline__ float sum_of_lanes(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value = __fadd_rn(value, __shfl_xor_sync(~0u, value, distance));
  return value;
}

}  // namespace ws
