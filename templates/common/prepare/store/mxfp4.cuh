// Scales of prepared MXFP4 weights: as they are given, a word for a row pair.
#pragma once

namespace ws {

// The second half is where rotating left by 8 brings it into place.
__device__ __forceinline__ void store_scales(u8* scales, u32 row_pair, const Scales& low, const Scales& high) {
  const u32 first = low.of(0) << 7 | high.of(0) << 23, second = low.of(1) << 7 | high.of(1) << 23;
  *reinterpret_cast<u32*>(scales + row_pair * 4) = first | __funnelshift_r(second, second, 8);
}

}  // namespace ws
