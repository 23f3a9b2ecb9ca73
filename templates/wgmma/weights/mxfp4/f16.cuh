// What a thread takes of a block of prepared MXFP4 weights in f16.
//
// A code is decoded as 2^-14 of itself. f16 has a factor that takes it from there to its product with any power below 2, and
// weights have no other powers as a rule. Where a warp meets one, it multiplies once more.
#pragma once

#include "wgmma/weights/mxfp4/powers.cuh"

namespace ws {

struct WeightFormat : Powers {
  // What is added to 1, in both halves, for 2^14 where the power is large.
  __device__ static u32 where_large(u32 exponents) {
    const u32 large = exponents & 0x40004000;
    return large - (large >> 3);
  }

  // 2^14 times the powers, large ones as they are. A power is rounded first: to infinity above what f16 has, to zero below.
  __device__ static u32 step_scales(const Scales& scales, int step) {
    const u32 pair = exponents(scales, step) & 0x7F807F80;
    const u32 powers = cvt_f16x2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000u));
    return Decode::mul(powers, 0x74007400 - where_large(pair));
  }

  // Two weights of row g (HALF 0) or g + 8 (1): 2^14 times them where the power is large.
  template <int HALF>
  __device__ __forceinline__ static u32 enlarged(u32 weights, const Scales& scales, int step) {
    return Decode::mul(weights, 0x3C003C00 + where_large(both<HALF>(exponents(scales, step))));
  }
};

}  // namespace ws
