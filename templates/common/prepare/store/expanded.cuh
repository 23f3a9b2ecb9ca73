// What is stored of weights that are e4m3 values already: these, in the order in which an instruction takes them.
#pragma once

#include "common/quantise/round.cuh"

namespace ws {

// The bytes of eight magnitudes under a scale: 0, 1/2, 1, 1 1/2, 2, 3, 4, 6 times it, rounded to e4m3.
struct Magnitudes {
  u32 low, high;

  __device__ explicit Magnitudes(float scale) : low(four(0.f, 0.5f, 1.f, 1.5f, scale)), high(four(2.f, 3.f, 4.f, 6.f, scale)) {}

 private:
  __device__ static u32 four(float a, float b, float c, float d, float scale) {
    return byte(a * scale) | byte(b * scale) << 8 | byte(c * scale) << 16 | byte(d * scale) << 24;
  }
  // Normal from 2^-6 on.
  __device__ static u32 byte(float magnitude) { return magnitude != magnitude ? 0x7Fu : e4m3_byte(rounded<0x3C800000u, 3>(magnitude)); }
};

// What a thread writes of a row: 16 values, four a word.
struct Quarter {
  u32 values[4];

  __device__ Quarter() : values{} {}
  __device__ Quarter(const u32 (&codes)[2], u32 scale, float factor) {
    const u32 magnitude = scale & 0x7Fu;
    const Magnitudes of(__fdiv_rn(magnitude == 0x7Fu ? __uint_as_float(0x7FFFFFFFu) : e4m3_value(magnitude), factor));
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const u32 four = codes[i / 2] >> (i % 2 * 16);
      u32 signs = 0;
#pragma unroll
      for (int j = 0; j < 4; j++) signs |= (four >> (4 * j + 3) & 1u) << (8 * j + 7);
      values[i] = prmt(of.low, of.high, four & 0x7777u) | signs;
    }
  }
};

// A step of 32 along K after the other: eight values of the low row and of the high one, four of each in turn.
__device__ __forceinline__ void store(u8* block, u32 thread, const Quarter& low, const Quarter& high) {
#pragma unroll
  for (int step = 0; step < 2; step++)
    *reinterpret_cast<uint4*>(block + step * THREADS * 16 + thread * 16) =
        make_uint4(low.values[2 * step], high.values[2 * step], low.values[2 * step + 1], high.values[2 * step + 1]);
}

}  // namespace ws
