// Scales of prepared NVFP4 weights that become 16-bit values: E5M3, two words for a row pair.
#pragma once

namespace ws {

// The magnitudes of two e4m3 scales as a pair of binary16 numbers. Shifted into its places, an e4m3 number is its value
// times 2^-8 (exponent bias 15 instead of 7), subnormal or not; the multiplication by 256 is exact. NaN stays NaN.
__device__ __forceinline__ u32 scale_pair(u32 low, u32 high) {
  const u32 low_magnitude = low & 0x7Fu, high_magnitude = high & 0x7Fu;
  u32 pair = mul_f16x2(low_magnitude << 7 | high_magnitude << 23, 0x5C005C00u);
  if (low_magnitude == 0x7Fu) pair |= 0x00007F80u;
  if (high_magnitude == 0x7Fu) pair |= 0x7F800000u;
  return pair;
}

__device__ __forceinline__ void store_scales(u8* scales, u32 row_pair, const Scales& low, const Scales& high) {
  u32 pairs[4];
#pragma unroll
  for (int step = 0; step < 4; step++) pairs[step] = scale_pair(low.of(step), high.of(step));
  const uint2 both = make_uint2(scale_word(pairs[0], pairs[1]), scale_word(pairs[2], pairs[3]));
  *reinterpret_cast<uint2*>(scales + row_pair * 8) = both;
}

}  // namespace ws
