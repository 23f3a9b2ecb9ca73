// The arithmetic of block-scaled products of NVFP4, as tensor cores of sm_100 and sm_120 do it: the bit-exact model of MMA-Sim
// (arXiv 2511.10909), which its authors found to agree with both. One element of the result, over 64 of K:
//
//   any scale or the addend NaN        0x7FFFFFFF
//   each block of 16                   the exact sum of its products times the scales' significands, at the sum of their exponents
//   those four and the addend          at the largest of the five exponents with 35 bits behind the point, truncated; added exactly
//   the sum                            truncated to fp32
#pragma once

#include "runtime.h"

// Twice the value of an e2m1 code.
inline int emu_e2m1_doubled(emu_u32 code) {
  static const signed char magnitudes[8] = {0, 1, 2, 3, 4, 6, 8, 12};
  const int magnitude = magnitudes[code & 7];
  return code & 8 ? -magnitude : magnitude;
}

struct EmuScale {
  int significand, exponent;  // significand · 2^(exponent − 3)
  bool is_nan;
};
// The sign is not looked at.
inline EmuScale emu_e4m3_scale(emu_u8 code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  return {exponent ? 8 + fraction : fraction, (exponent ? exponent : 1) - 7, (code & 0x7F) == 0x7F};
}

// `sums` are those of the products of doubled codes of each block.
inline float emu_mxf4nvf4(float addend, const int (&sums)[4], const EmuScale (&a)[4], const EmuScale (&b)[4]) {
  const emu_u32 bits = emu_bits(addend);
  const int biased = bits >> 23 & 255;
  const emu_u32 fraction = bits & 0x7FFFFF;
  for (int block = 0; block < 4; block++)
    if (a[block].is_nan || b[block].is_nan) return emu_float(0x7FFFFFFF);
  if (biased == 255) return fraction ? emu_float(0x7FFFFFFF) : addend;

  const int addend_exponent = biased ? biased - 127 : -126;
  int largest = addend_exponent;
  for (int block = 0; block < 4; block++) {
    const int exponent = a[block].exponent + b[block].exponent;
    if (exponent > largest) largest = exponent;
  }
  // `value` · 2^shift, truncated toward zero.
  const auto at_largest = [](long long value, int shift) -> __int128 {
    if (shift >= 0) return static_cast<__int128>(value) << (shift < 100 ? shift : 100);
    if (shift < -62) return 0;
    const long long magnitude = (value < 0 ? -value : value) >> -shift;
    return value < 0 ? -magnitude : magnitude;
  };
  const long long significand = (biased ? 0x800000 : 0) | fraction;
  __int128 sum = at_largest(bits >> 31 ? -significand : significand, 35 - 23 + addend_exponent - largest);
  for (int block = 0; block < 4; block++) {
    const long long product = static_cast<long long>(sums[block]) * a[block].significand * b[block].significand;
    // Doubled codes are a factor of 4, significands one of 64.
    sum += at_largest(product, 35 - 8 + a[block].exponent + b[block].exponent - largest);
  }
  if (sum == 0) return 0.0f;
  const bool is_negative = sum < 0;
  unsigned __int128 magnitude = is_negative ? -static_cast<unsigned __int128>(sum) : static_cast<unsigned __int128>(sum);
  int top = 127;
  while (!(magnitude >> top & 1)) top--;
  int exponent = largest - 35 + top;  // of the highest bit
  const int lowest = exponent < -126 ? -126 - 23 : exponent - 23;  // of the last bit that is kept
  const int drop = lowest - (largest - 35);
  const emu_u32 kept = emu_u32(drop >= 0 ? (drop < 128 ? magnitude >> drop : 0) : magnitude << -drop);
  if (exponent > 127) return emu_float(0x7F800000 | emu_u32(is_negative) << 31);
  const emu_u32 result = exponent < -126 ? kept : emu_u32(exponent + 127) << 23 | (kept & 0x7FFFFF);
  return emu_float(result | emu_u32(is_negative) << 31);
}
