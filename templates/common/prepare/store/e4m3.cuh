// What is stored of weights that kernels make e4m3 of: codes, and the bytes of their scales.
#pragma once

namespace ws {

// The stored bytes of a block scale: of zero, of NaN, and of the smallest, from which they go down.
inline constexpr u32 ZERO = 0xFF, NAN_BYTE = 0xFE, SMALLEST = 0xFD;

// The byte of a block scale in a row with this factor.
__device__ __forceinline__ u32 scale_byte(u32 scale, float factor) {
  const u32 magnitude = scale & 0x7Fu;
  if (magnitude == 0) return ZERO;
  if (magnitude == 0x7Fu) return NAN_BYTE;
  const u32 bits = __float_as_uint(__fdiv_rn(e4m3_value(magnitude), factor)) >> 20;
  constexpr u32 LEAST = (127 - 12) << 3, NORMAL = (127 - 5) << 3, BIAS = (127 - 7) << 3;  // 2^-12, 2^-5, and of e4m3
  return bits < NORMAL ? SMALLEST - (bits - LEAST) : bits - BIAS;
}

// The word of eight codes: signs are moved to where one shift brings them into the bytes of two registers.
__device__ __forceinline__ u32 code_word(u32 codes) {
  u32 word = codes & 0x77777777u;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    word |= (codes >> (4 * i + 3) & 1u) << (8 * i + 7);
    word |= (codes >> (4 * i + 19) & 1u) << (8 * i + 3);
  }
  return word;
}

// What a thread writes of a row: two code words, and the byte of their scale.
struct Quarter {
  u32 words[2];
  u32 scale;

  __device__ Quarter() : words{}, scale(ZERO) {}
  __device__ Quarter(const u32 (&codes)[2], u32 scale, float factor)
      : words{code_word(codes[0]), code_word(codes[1])}, scale(scale_byte(scale, factor)) {}
};

__device__ __forceinline__ void store(u8* block, u32 thread, const Quarter& low, const Quarter& high) {
  *reinterpret_cast<uint4*>(block + thread * 16) = make_uint4(low.words[0], low.words[1], high.words[0], high.words[1]);
  *reinterpret_cast<u16*>(block + THREADS * 16 + thread * 2) = static_cast<u16>(low.scale | high.scale << 8);
}

}  // namespace ws
