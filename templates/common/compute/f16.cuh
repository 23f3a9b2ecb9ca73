// Products of f16 values with fp32 accumulation.
#pragma once

namespace ws {

struct Compute {
  // High and low bytes of the eight e2m1 magnitudes 0, ½, 1, 1½, 2, 3, 4, 6 as f16; entry i is byte i.
  static constexpr u64 E2M1_HIGH = 0x464442403E3C3800ull;
  static constexpr u64 E2M1_LOW = 0;
  // An e4m3 magnitude shifted to here reads as f16 value·2^-8 (the difference of the exponent biases, 7 and 15),
  // subnormals included; times 256 it is the value. Exact: f16 has more exponent and mantissa bits than e4m3.
  static constexpr int E4M3_SHIFT = 7;
  static constexpr u32 E4M3_REBIAS = 0x5C005C00u;  // {256, 256}

  // Rounded: to infinity above what f16 has, to zero below.
  __device__ static u32 pair_of_f32(u32 bits) { return cvt_f16x2(__uint_as_float(bits), __uint_as_float(bits)); }

  __device__ static u32 mul(u32 a, u32 b) { return mul_f16x2(a, b); }
  __device__ static void mma(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    mma_m16n8k16_f16(d, a0, a1, a2, a3, b0, b1);
  }
};

}  // namespace ws
