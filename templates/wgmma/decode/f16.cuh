// Prepared weights → f16, 4 shifts and 4 LOP3 for 8 codes (the layout: src/format/prepared.rs).
#pragma once

namespace ws {

struct Decode {
  // Pair PAIR (0, 2: row g; 1, 3: row g + 8; 2, 3: k + 8) of a code word, as value·2^-14.
  template <int PAIR>
  __device__ __forceinline__ static u32 codes(u32 word) {
    constexpr u32 MASK = 0x8E008E00;  // sign, two bits of the exponent, one of the mantissa
    if constexpr (PAIR == 0) return (word << 9) & MASK;
    if constexpr (PAIR == 1) return (word ^ (word >> 3)) & MASK;
    if constexpr (PAIR == 2) return (word ^ (word << 4)) & MASK;
    return (word ^ (word << 7)) & MASK;
  }

  // The scales of k16 step STEP (0 or 1) of a scale word: row g in the low half, row g + 8 in the high half.
  template <int STEP>
  __device__ __forceinline__ static u32 scales(u32 word) {
    return (STEP == 0 ? word : rotate_left<8>(word)) & 0x7F807F80;
  }

  __device__ __forceinline__ static u32 mul(u32 a, u32 b) { return mul_f16x2(a, b); }
};

}  // namespace ws
