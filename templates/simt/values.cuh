// Eight values at a time, widened to f32 exactly.
//
// most_of(x): the largest of the magnitudes or, if not all are numbers, it or something that is none.
#pragma once

namespace ws {

// What values of 16 bits are.
struct F16 {
  static __device__ __forceinline__ float widened(u16 bits) { return cvt_f32_f16(bits); }
  static __device__ __forceinline__ u32 max_abs(u32 a, u32 b) { return max_abs_f16x2(a, b); }
};
struct Bf16 {
  static __device__ __forceinline__ float widened(u16 bits) { return __uint_as_float(u32(bits) << 16); }
  static __device__ __forceinline__ u32 max_abs(u32 a, u32 b) { return max_abs_bf16x2(a, b); }
};

template <class Half>
struct HalfValues {
  uint4 words;

  __device__ __forceinline__ void load(const u8* from, long long element) {
    words = *reinterpret_cast<const uint4*>(from + element * 2);
  }

  static __device__ __forceinline__ float one(const u8* from, long long element) {
    return Half::widened(reinterpret_cast<const u16*>(from)[element]);
  }

  __device__ __forceinline__ float at(int i) const {
    const u32 word = i < 2 ? words.x : i < 4 ? words.y : i < 6 ? words.z : words.w;
    return Half::widened(static_cast<u16>(i % 2 == 0 ? word : word >> 16));
  }

  template <int COUNT>
  static __device__ __forceinline__ float most_of(const HalfValues (&x)[COUNT]) {
    u32 both = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      const uint4& words = x[i].words;
      both = larger(both, larger(larger(words.x, words.y), larger(words.z, words.w)));
    }
    return Half::widened(static_cast<u16>(max(both & 0x7FFFu, both >> 16 & 0x7FFFu)));
  }

 private:
  // Of the magnitudes in two words, twice. Bits have their order.
  static __device__ __forceinline__ u32 larger(u32 a, u32 b) {
    if constexpr (HAS_MAX_ABS) return Half::max_abs(a, b);
    return max(a & 0x7FFFu, b & 0x7FFFu) | max(a & 0x7FFF0000u, b & 0x7FFF0000u);
  }
};
using F16Values = HalfValues<F16>;
using Bf16Values = HalfValues<Bf16>;

struct F32Values {
  float4 low, high;

  __device__ __forceinline__ void load(const u8* from, long long element) {
    low = reinterpret_cast<const float4*>(from + element * 4)[0];
    high = reinterpret_cast<const float4*>(from + element * 4)[1];
  }

  static __device__ __forceinline__ float one(const u8* from, long long element) {
    return reinterpret_cast<const float*>(from)[element];
  }

  __device__ __forceinline__ float at(int i) const {
    const float4& four = i < 4 ? low : high;
    return i % 4 == 0 ? four.x : i % 4 == 1 ? four.y : i % 4 == 2 ? four.z : four.w;
  }

  template <int COUNT>
  static __device__ __forceinline__ float most_of(const F32Values (&x)[COUNT]) {
    float most = 0.0f;
#pragma unroll
    for (int i = 0; i < COUNT * 8; i++) most = fmaxf(most, fabsf(x[i / 8].at(i % 8)));
    return most;
  }
};

}  // namespace ws
