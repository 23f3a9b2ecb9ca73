// Block scales of NVFP4 weights: e4m3, four for 64 elements, stored as E5M3.
#pragma once

namespace ws {

// Those of 64 elements of a row, a byte for each of four steps.
struct Scales {
  u32 bytes;

  __device__ void load(const u8* from) { bytes = *reinterpret_cast<const u32*>(from); }

  __device__ u32 of(int step) const { return bytes >> (8 * step) & 0xFFu; }

  // Codes of a step as they are stored under its scale: negated for a negative one, 0 for zero.
  __device__ u32 settle(u32 codes, int step) const {
    const u32 scale = of(step);
    const u32 negated = (scale & 0x80u) != 0 ? codes ^ 0x88888888u : codes;
    return (scale & 0x7Fu) != 0 ? negated : 0u;
  }
};

// The magnitudes of two e4m3 scales as a pair of binary16 numbers. Shifted into its places, an e4m3 number is its value
// times 2^-8 (exponent bias 15 instead of 7), subnormal or not; the multiplication by 256 is exact. NaN stays NaN.
__device__ __forceinline__ u32 scale_pair(u32 low, u32 high) {
  const u32 low_magnitude = low & 0x7Fu, high_magnitude = high & 0x7Fu;
  u32 pair = mul_f16x2(low_magnitude << 7 | high_magnitude << 23, 0x5C005C00u);
  if (low_magnitude == 0x7Fu) pair |= 0x00007F80u;
  if (high_magnitude == 0x7Fu) pair |= 0x7F800000u;
  return pair;
}

// Two words for a row pair.
__device__ __forceinline__ void store_scales(u8* scales, u32 row_pair, const Scales& low, const Scales& high) {
  u32 pairs[4];
#pragma unroll
  for (int step = 0; step < 4; step++) pairs[step] = scale_pair(low.of(step), high.of(step));
  const uint2 both = make_uint2(scale_word(pairs[0], pairs[1]), scale_word(pairs[2], pairs[3]));
  *reinterpret_cast<uint2*>(scales + row_pair * 8) = both;
}

}  // namespace ws
