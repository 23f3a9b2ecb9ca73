// The scales of a block of prepared MXFP4 weights: a power of two for a row and two k16 steps.
#pragma once

namespace ws {

// Of 64 rows × 64 of K.
struct WeightBlock {
  u8 codes[2048], scales[128];
};

struct Powers {
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

  __device__ static bool any_large(const Scales& scales) { return scales.any_large; }
};

}  // namespace ws
