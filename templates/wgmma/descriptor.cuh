// How the matrix instruction finds tokens in shared memory.
#pragma once

namespace ws {

// "Matrix descriptor": K-major rows of 128 bytes in the 128-byte swizzle, 8 rows = 1024 bytes apart.
__device__ __forceinline__ u64 token_descriptor(u32 shared) {
  constexpr u64 STRIDE = u64(1024 >> 4) << 32, SWIZZLE_128B = u64(1) << 62;
  constexpr u32 LEADING = 1 << 16;
  // A block's own addresses have 18 bits, and in a cluster may say whose they are above.
  const u32 place = MULTICAST * CLUSTER_SPLITS > 1 ? shared >> 4 & 0x3FFF : shared >> 4;
  return place + LEADING | STRIDE | SWIZZLE_128B;
}
inline constexpr u64 DESCRIPTOR_STEP = 32 >> 4;  // what one instruction multiplies along K further: 32 bytes

}  // namespace ws
