// What a block loses under a scale. Every operation rounds once, and sums have one order, so that a host computes the same bits.
#pragma once

namespace ws {

// The value of a scale's byte: with that as the uppermost bits of a number, this is 2^120 times it, subnormals too.
__device__ __forceinline__ float scale_value(u32 byte) { return __fmul_rn(__uint_as_float(byte << 20), 0x1p120f); }

// The sum of 16 squares: of every fourth each, then of these in pairs.
template <class Value>
__device__ __forceinline__ double sum_of_squares(const Value& value) {
  double lanes[4] = {};
#pragma unroll
  for (int i = 0; i < 16; i++) {
    const double one = value(i);
    lanes[i % 4] = __dadd_rn(lanes[i % 4], __dmul_rn(one, one));
  }
  return __dadd_rn(__dadd_rn(lanes[0], lanes[1]), __dadd_rn(lanes[2], lanes[3]));
}

template <class Quotients>
__device__ __forceinline__ double error_over(const X (&x)[2], const Quotients& quotients, float step) {
  return sum_of_squares([&](int i) -> double {
    const float value = x[i / 8].at(i % 8);
    const float code = __fmul_rn(e2m1_value(value, quotients), 0x1p14f);
    return __dsub_rn(value, __fmul_rn(code, step));
  });
}

// The sum of squared errors, where each value has the nearest code over `by`, and a reader multiplies that by `step`.
__device__ __forceinline__ double error_of(const X (&x)[2], float by, float step) {
  return QuickQuotients::can_be(by) ? error_over(x, QuickQuotients(by), step) : error_over(x, Quotients{by}, step);
}

// A scale's byte, what values are divided by under it, and what is lost.
struct Choice {
  u32 scale;
  float by;
  double error;
};

}  // namespace ws
