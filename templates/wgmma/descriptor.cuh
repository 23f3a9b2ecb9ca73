// How the matrix instruction finds tokens in shared memory.
#pragma once

namespace ws {

// "Matrix descriptor": K-major rows of 128 bytes in the 128-byte swizzle, 8 rows = 1024 bytes apart.
__device__ __forceinline__ u64 token_descriptor(u32 shared) {
  constexpr u64 STRIDE = u64(1024 >> 4) << 32, SWIZZLE_128B = u64(1) << 62;
  constexpr u32 LEADING = 1 << 16;
  return (shared >> 4) + LEADING | STRIDE | SWIZZLE_128B;  // an address has 18 bits
}
inline constexpr u64 DESCRIPTOR_STEP = 32 >> 4;  // what one instruction multiplies along K further: 32 bytes

}  // namespace ws
