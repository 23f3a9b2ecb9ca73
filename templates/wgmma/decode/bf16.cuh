// Prepared weights → bf16, 4 shifts and 4 LOP3 for 8 codes (the layout: src/format/prepared.rs).
#pragma once

namespace ws {

struct Decode {
  // Pair PAIR (0, 2: row g; 1, 3: row g + 8; 2, 3: k + 8) of a code word, as value·2^-126.
  template <int PAIR>
  __device__ __forceinline__ static u32 codes(u32 word) {
    constexpr u32 MASK = 0x81C081C0;  // sign, two bits of the exponent, one of the mantissa
    if constexpr (PAIR == 0) return word & MASK;
    if constexpr (PAIR == 1) return (word << 6) & MASK;
    if constexpr (PAIR == 2) return rotate_left<12>(word) & MASK;
    return ((word << 2) ^ (word >> 6)) & MASK;
  }

  // The scales of k16 step STEP (0 or 1) of a scale word, times 2^112, so that the product with a code is the true value
  // times 2^-14, a normal number: row g in the low half, row g + 8 in the high half. (No scale is 0 here: the codes are.)
  template <int STEP>
  __device__ __forceinline__ static u32 scales(u32 word) {
    return and_or<0x0FF00FF0>(STEP == 0 ? word : rotate_left<8>(word), 0x70007000u);
  }

  __device__ __forceinline__ static u32 mul(u32 a, u32 b) { return mul_rn_bf16x2(a, b); }
};

}  // namespace ws
