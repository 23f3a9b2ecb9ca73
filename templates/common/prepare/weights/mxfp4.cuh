// Block scales of MXFP4 weights: e8m0, two for 64 elements, stored as they are.
#pragma once

namespace ws {

// Those of 64 elements of a row, a byte for two steps each.
struct Scales {
  u32 bytes;

  __device__ void load(const u8* from) { bytes = *reinterpret_cast<const u16*>(from); }

  __device__ u32 of(int half) const { return bytes >> (8 * half) & 0xFFu; }

  // Codes of a step as they are stored under its scale: 0 for NaN, which kernels take for infinity, and 0 times that is NaN.
  __device__ u32 settle(u32 codes, int step) const { return of(step / 2) == 0xFFu ? 0u : codes; }
};

// A word for a row pair. The second half is where rotating left by 8 brings it into place.
__device__ __forceinline__ void store_scales(u8* scales, u32 row_pair, const Scales& low, const Scales& high) {
  const u32 first = low.of(0) << 7 | high.of(0) << 23, second = low.of(1) << 7 | high.of(1) << 23;
  *reinterpret_cast<u32*>(scales + row_pair * 4) = first | __funnelshift_r(second, second, 8);
}

}  // namespace ws
