// Stores of several words at once; the address is aligned to what is stored.
#pragma once

namespace ws {

template <int COUNT>
__device__ __forceinline__ void store_words(u8* to, const u32 (&words)[COUNT]) {
  if constexpr (COUNT == 1) {
    *reinterpret_cast<u32*>(to) = words[0];
  } else if constexpr (COUNT == 2) {
    *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
  } else {
    static_assert(COUNT % 4 == 0, "whole 16-byte stores");
#pragma unroll
    for (int i = 0; i < COUNT; i += 4)
      *reinterpret_cast<uint4*>(to + 4 * i) = make_uint4(words[i], words[i + 1], words[i + 2], words[i + 3]);
  }
}

template <int COUNT>
__device__ __forceinline__ void store_floats(u8* to, const float (&values)[COUNT]) {
  u32 words[COUNT];
#pragma unroll
  for (int i = 0; i < COUNT; i++) words[i] = __float_as_uint(values[i]);
  store_words(to, words);
}

// C in a 16-bit format: COUNT consecutive elements, rounded in pairs and stored at once.
template <u32 (*ROUND)(float, float)>
struct HalfOutput {
  static constexpr int BYTES = 2;
  enum : bool { IN_BLOCKS = false };

  // Two elements, the first in the low half.
  __device__ static u32 round(float low, float high) { return ROUND(low, high); }

  template <int COUNT>
  __device__ static void store(u8* c, long long element, const float (&values)[COUNT]) {
    u32 words[COUNT / 2];
#pragma unroll
    for (int i = 0; i < COUNT / 2; i++) words[i] = ROUND(values[2 * i], values[2 * i + 1]);
    store_words(c + element * 2, words);
  }
};

}  // namespace ws
