// Numbers rounded to the small floats of NVFP4, to nearest with ties to even. IEEE operations alone, so that a host computes
// the same bits.
#pragma once

namespace ws {

// `magnitude` with so many digits behind its first; below NORMAL (the smallest normal number, as bits), with the same step as
// there. Adding 1.5 times the power of two whose last digit is that step rounds.
template <u32 NORMAL, int DIGITS>
__device__ __forceinline__ float rounded(float magnitude) {
  constexpr float DISTANCE = 3 << (22 - DIGITS);
  const u32 exponent = max(__float_as_uint(magnitude) & 0x7F800000u, NORMAL);
  const float rounder = __fmul_rn(__uint_as_float(exponent), DISTANCE);
  return __fsub_rn(__fadd_rn(magnitude, rounder), rounder);
}

// The block scale of a largest magnitude, a value of e4m3. A block that is not all zero has at least the smallest one: 0 would
// lose its codes.
__device__ __forceinline__ float block_scale(float most, float factor) {
  const float scale = __fdiv_rn(__fdiv_rn(most, 6.0f), factor);
  const float kept = most == 0.0f ? 1.0f : fminf(fmaxf(scale, 0x1p-9f), 448.0f);
  return rounded<0x3C800000u, 3>(kept);  // normal from 2^-6 on
}

// A value of e4m3 as its byte: times 2^-120 it has that in its uppermost bits, subnormals too.
__device__ __forceinline__ u8 e4m3_byte(float scale) {
  return static_cast<u8>(__float_as_uint(__fmul_rn(scale, 0x1p-120f)) >> 20);
}

// x / divisor · 2^-14, rounded once (by what 2^-14 is, nothing is lost).
struct Quotients {
  float divisor;

  __device__ __forceinline__ float of(float x) const { return __fmul_rn(__fdiv_rn(x, divisor), 0x1p-14f); }
};

// The same with the reciprocal as a sum of two numbers. For every divisor that `can_be` takes, and every x, the quotient is on
// the same side of each midpoint of e2m1 as the one above, or on it with that: all 2^23 mantissas have been tried with all
// x that are near. Infinities may become NaN.
struct QuickQuotients {
  float high, low;

  // No power of two so far away that anything but a vanishing quotient is subnormal, and not the mantissa of all ones.
  static __device__ __forceinline__ bool can_be(float divisor) {
    return divisor > 0x1p-80f && divisor < 0x1p80f && (__float_as_uint(divisor) & 0x7FFFFFu) != 0x7FFFFFu;
  }

  __device__ __forceinline__ explicit QuickQuotients(float divisor) {
    const float reciprocal = __frcp_rn(divisor);
    const float rest = __fmaf_rn(-divisor, reciprocal, 1.0f);
    high = __fmul_rn(reciprocal, 0x1p-14f);
    low = __fmul_rn(rest, high);
  }

  __device__ __forceinline__ float of(float x) const { return __fmaf_rn(x, high, __fmul_rn(x, low)); }
};

// The nearest value of e2m1 times 2^-14, with the sign of x. What is too large saturates, and so does a quotient that is NaN,
// which is that of an infinity.
template <class Quotients>
__device__ __forceinline__ float e2m1_value(float x, const Quotients& quotients) {
  const float magnitude = rounded<0x38800000u, 1>(fminf(fabsf(quotients.of(x)), 6.0f * 0x1p-14f));  // normal from 2^-14 on
  return __uint_as_float(__float_as_uint(magnitude) | (__float_as_uint(x) & 0x80000000u));
}

// Up to eight codes, the first in the lowest four bits. Times 2^-14 a value of e2m1 is one of f16, and has its code in the bits
// 15 and 11…9 of that.
template <int COUNT, class X, class Quotients>
__device__ __forceinline__ u32 e2m1_codes(const X& x, const Quotients& quotients) {
  static_assert(COUNT <= 8, "a word");
  u32 codes = 0;
#pragma unroll
  for (int i = 0; i < 4 && i < COUNT; i++) {
    const float other = i + 4 < COUNT ? e2m1_value(x.at(i + 4), quotients) : 0.0f;
    const u32 pair = cvt_f16x2(e2m1_value(x.at(i), quotients), other);
    const u32 nibbles = (pair >> 3 & 0xF000F000u) | (pair & 0x0FFF0FFFu);  // in the bits 12…9 of each half
    codes |= i < 3 ? nibbles >> (9 - 4 * i) : nibbles << 3;
  }
  return codes;
}

// The scale of a block whose largest magnitude is `most`, and the codes under it. NaN stays, as the scale: e2m1 has none.
struct BlockScale {
  float scale, divisor;
  bool is_nan;

  __device__ __forceinline__ BlockScale(float most, float factor)
      : scale(block_scale(most, factor)), divisor(__fmul_rn(scale, factor)), is_nan(most != most) {}

  // COUNT of them a word.
  template <int COUNT, int WORDS, class X>
  __device__ __forceinline__ void codes(const X (&x)[WORDS], u32 (&words)[WORDS]) const {
    if (QuickQuotients::can_be(divisor)) {
      const QuickQuotients quotients(divisor);
#pragma unroll
      for (int i = 0; i < WORDS; i++) words[i] = e2m1_codes<COUNT>(x[i], quotients);
    } else {
#pragma unroll
      for (int i = 0; i < WORDS; i++) words[i] = e2m1_codes<COUNT>(x[i], Quotients{divisor});
    }
#pragma unroll
    for (int i = 0; i < WORDS; i++) words[i] = is_nan ? 0 : words[i];
  }

  __device__ __forceinline__ u8 byte() const { return is_nan ? 0x7F : e4m3_byte(scale); }
};

}  // namespace ws
