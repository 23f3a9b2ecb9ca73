// Products of bf16 values with fp32 accumulation.
#pragma once

namespace ws {

struct Compute {
  // High and low bytes of the eight e2m1 magnitudes 0, ½, 1, 1½, 2, 3, 4, 6 as bf16; entry i is byte i.
  static constexpr u64 E2M1_HIGH = 0x404040403F3F3F00ull;
  static constexpr u64 E2M1_LOW = 0xC0804000C0800000ull;
  // An e4m3 magnitude shifted to here reads as bf16 value·2^-120 (exponent biases 7 and 127), subnormals included;
  // times 2^120 it is the value. Exact: bf16 has more exponent bits and four more mantissa bits than e4m3.
  static constexpr int E4M3_SHIFT = 4;
  static constexpr u32 E4M3_REBIAS = 0x7B807B80u;  // {2^120, 2^120}

  // A power of two, or NaN: a bf16 is the upper half.
  __device__ static u32 pair_of_f32(u32 bits) { return prmt(bits, bits, 0x3232u); }

  __device__ static u32 mul(u32 a, u32 b) { return mul_bf16x2(a, b); }
  __device__ static void mma(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    mma_m16n8k16_bf16(d, a0, a1, a2, a3, b0, b1);
  }
};

}  // namespace ws
