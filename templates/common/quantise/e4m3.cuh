// Values under a factor to e4m3 (the rule: docs/formats.md).
#pragma once

#include "common/quantise/finite.cuh"
#include "common/quantise/round.cuh"

namespace ws {

// Of the largest finite magnitude of what has it, as bits.
__device__ __forceinline__ float factor_of(u32 largest) {
  return largest == 0 ? 1.0f : fmaxf(__fdiv_rn(__uint_as_float(largest), 448.0f), 0x1p-126f);
}

// A factor, and how values under it become bytes.
struct E4m3Factor {
  float factor, reciprocal;
  bool is_quick;  // `four` may be asked

  __device__ __forceinline__ explicit E4m3Factor(float factor)
      : factor(factor), reciprocal(__frcp_rn(factor)), is_quick(QuickQuotients::can_be(factor)) {}

  // The nearest e4m3 byte; NaN of what is no number. The largest quotient is 448, or a rounding more.
  __device__ __forceinline__ u32 one(float x) const {
    if (!is_number(x)) return 0x7F;
    const float magnitude = fabsf(__fdiv_rn(x, factor));
    return e4m3_byte(rounded<0x3C800000u, 3>(magnitude)) | (__float_as_uint(x) >> 24 & 0x80u);  // normal from 2^-6 on
  }

  // A word of four, of eight values from `first` on.
  template <class Values>
  __device__ __forceinline__ u32 four(const Values& x, int first) const {
    const u32 low = cvt_e4m3x2(quotient(x.at(first)), quotient(x.at(first + 1)));
    return low | cvt_e4m3x2(quotient(x.at(first + 2)), quotient(x.at(first + 3))) << 16;
  }

 private:
  // x / factor, rounded once: the reciprocal is, and its mantissa is not that of all ones (P. Markstein, "Computation of elementary
  // functions on the IBM RISC System/6000 processor", 1990). An infinity becomes NaN, zeros keep their sign.
  __device__ __forceinline__ float quotient(float x) const {
    const float near = __fmul_rn(x, reciprocal);
    const float more = __fmaf_rn(near, factor, -x);
    return __fmaf_rn(more, -reciprocal, near);
  }
};

}  // namespace ws
