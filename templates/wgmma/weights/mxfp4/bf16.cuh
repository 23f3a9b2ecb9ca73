// What a block of prepared MXFP4 weights has, and what of it a thread takes: a power of two for a row and two k16 steps.
//
// A code is decoded as 2^-126 of itself. bf16 has a factor that takes it from there to its product with any power below 2, and
// weights have no other powers as a rule. Where a warp meets one, it multiplies twice more.
#pragma once

namespace ws {

// Of 64 rows × 64 of K. No variable: those are part of what is compiled, in their order.
enum : int { BLOCK_SCALE_BYTES = 128 };

struct WeightFormat {
  // Decoded weights are the true ones.
  __device__ static constexpr float unit() { return 1.f; }

  // A word for a row pair: of the steps 0 and 1, and rotated left by 8 of 2 and 3.
  struct Scales {
    u32 word;
    bool any_large;  // that any lane has, 2 or above
  };

  __device__ static Scales load(u32 scales, int row_pair) {
    const u32 word = ld_shared_4(scales + row_pair * 4);
    return {word, __ballot_sync(~0u, (word & 0x40404040) != 0) != 0};
  }

  // Of step `step`: row g in the low half, row g + 8 in the high half. Exponents with bias 127 in the bits 14 to 7 of each.
  __device__ static u32 exponents(const Scales& scales, int step) {
    return step / 2 == 0 ? scales.word : rotate_left<8>(scales.word);
  }

  // 2^126 times the powers, of large ones 2^-2 times them.
  __device__ static u32 step_scales(const Scales& scales, int step) {
    return (exponents(scales, step) & 0x3F803F80) + 0x3F003F00;
  }

  template <int PAIR>
  __device__ __forceinline__ static u32 codes(u32 word) {
    return Decode::codes<PAIR>(word);
  }

  __device__ static bool any_large(const Scales& scales) { return scales.any_large; }

  // Two weights of row g (HALF 0) or g + 8 (1): 2^128 times them, as twice 2^64, where the power is large. An exponent of 255 is
  // that of infinity, which makes NaN of its codes: they are 0.
  template <int HALF>
  __device__ __forceinline__ static u32 enlarged(u32 weights, const Scales& scales, int step) {
    const u32 pair = both<HALF>(exponents(scales, step)) & 0x7F807F80;
    const u32 once = 0x3F803F80 + ((pair & 0x40004000) >> 1), again = pair == 0x7F807F80 ? pair : once;
    return Decode::mul(Decode::mul(weights, once), again);
  }
};

}  // namespace ws
