// What a block of prepared MXFP4 weights has, and what of it a thread takes: a power of two for a row and two k16 steps.
//
// f16 has no room for a code as it is decoded (2^-14 of it) times any of these powers: codes become what they are first, which
// is exact, and are then multiplied as the path mma does it.
#pragma once

namespace ws {

// Of 64 rows × 64 of K. No variable: those are part of what is compiled, in their order.
enum : int { BLOCK_SCALE_BYTES = 128 };

struct WeightFormat {
  // Decoded weights are the true ones.
  __device__ static constexpr float unit() { return 1.f; }

  // A word for a row pair: of the steps 0 and 1, and rotated left by 8 of 2 and 3.
  using Scales = u32;

  __device__ static Scales load(u32 scales, int row_pair) { return ld_shared_4(scales + row_pair * 4); }

  // Of step `step`: row g in the low half, row g + 8 in the high half. Their exponents (with bias 127) are in the bits 14 to 7
  // of each half; rounded: to infinity above what f16 has, to zero below.
  __device__ static u32 step_scales(const Scales& scales, int step) {
    const u32 pair = (step / 2 == 0 ? scales : rotate_left<8>(scales)) & 0x7F807F80;
    return cvt_f16x2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000u));
  }

  template <int PAIR>
  __device__ __forceinline__ static u32 codes(u32 word) {
    return Decode::mul(Decode::codes<PAIR>(word), 0x74007400);  // 2^14
  }

  __device__ static constexpr bool any_large(const Scales&) { return false; }

  template <int HALF>
  __device__ static u32 enlarged(u32 weights, const Scales&, int) {
    return weights;
  }
};

}  // namespace ws
