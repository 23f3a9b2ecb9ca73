// Eight values at a time, widened to f32 exactly.
//
// most_of(x): the largest of the magnitudes or, if not all are numbers, it or something that is none.
#pragma once

namespace ws {

// Of two in a word, as bits.
__device__ __forceinline__ u16 larger_magnitude(u32 both) {
  return static_cast<u16>(max(both & 0x7FFFu, both >> 16 & 0x7FFFu));
}

struct F16Values {
  uint4 words;

  __device__ __forceinline__ void load(const u8* from, long long element) {
    words = *reinterpret_cast<const uint4*>(from + element * 2);
  }

  static __device__ __forceinline__ float one(const u8* from, long long element) {
    return cvt_f32_f16(reinterpret_cast<const u16*>(from)[element]);
  }

  __device__ __forceinline__ float at(int i) const {
    const u32 word = i < 2 ? words.x : i < 4 ? words.y : i < 6 ? words.z : words.w;
    return cvt_f32_f16(static_cast<u16>(i % 2 == 0 ? word : word >> 16));
  }

  template <int COUNT>
  static __device__ __forceinline__ float most_of(const F16Values (&x)[COUNT]) {
    u32 both = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      const uint4& words = x[i].words;
      both = max_abs_f16x2(both, max_abs_f16x2(max_abs_f16x2(words.x, words.y), max_abs_f16x2(words.z, words.w)));
    }
    return cvt_f32_f16(larger_magnitude(both));
  }
};

struct Bf16Values {
  uint4 words;

  __device__ __forceinline__ void load(const u8* from, long long element) {
    words = *reinterpret_cast<const uint4*>(from + element * 2);
  }

  static __device__ __forceinline__ float one(const u8* from, long long element) {
    return __uint_as_float(u32(reinterpret_cast<const u16*>(from)[element]) << 16);
  }

  __device__ __forceinline__ float at(int i) const {
    const u32 word = i < 2 ? words.x : i < 4 ? words.y : i < 6 ? words.z : words.w;
    return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xFFFF0000u);
  }

  template <int COUNT>
  static __device__ __forceinline__ float most_of(const Bf16Values (&x)[COUNT]) {
    u32 both = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      const uint4& words = x[i].words;
      both = max_abs_bf16x2(both, max_abs_bf16x2(max_abs_bf16x2(words.x, words.y), max_abs_bf16x2(words.z, words.w)));
    }
    return __uint_as_float(u32(larger_magnitude(both)) << 16);
  }
};

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
