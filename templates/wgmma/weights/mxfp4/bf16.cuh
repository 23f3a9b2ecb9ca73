// What a thread takes of a block of prepared MXFP4 weights in bf16.
//
// A code is decoded as 2^-126 of itself. bf16 has a factor that takes it from there to its product with any power below 2, and
// weights have no other powers as a rule. Where a warp meets one, it multiplies twice more.
#pragma once

#include "wgmma/weights/mxfp4/powers.cuh"

namespace ws {

struct WeightFormat : Powers {
  // 2^126 times the powers, of large ones 2^-2 times them.
  __device__ static u32 step_scales(const Scales& scales, int step) {
    return (exponents(scales, step) & 0x3F803F80) + 0x3F003F00;
  }

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
