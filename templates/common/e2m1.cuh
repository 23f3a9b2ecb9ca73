// NVFP4 to 16-bit values, exactly: every e2m1 code × e4m3 scale (237 distinct magnitudes, 2^-10 … 2688) is a normal
// number of f16 and of bf16, so nothing is rounded, flushed or left for the epilogue to put right. MXFP4 (e8m0 scales) the
// same way: exactly in bf16, within what f16 has in f16 (docs/formats.md).
#pragma once

namespace ws {

// Four bytes of a table of eight, one for each nibble (0…7) of the low 16 bits of `indices`.
__device__ __forceinline__ u32 look_up(u64 table, u32 indices) {
  return prmt(static_cast<u32>(table), static_cast<u32>(table >> 32), indices);
}

// Four codes in the low 16 bits (the others are ignored, as by prmt), low nibble first, to four 16-bit values: prmt looks
// the magnitudes up, and its sign replication turns a code's sign (bit 3 of the nibble) into bit 6 of a byte.
__device__ __forceinline__ void e2m1x4(u32 codes, u32& first, u32& second) {
  const u32 magnitude = codes & 0x7777u;
  const u32 sign = prmt(0x80808080u, 0x80808080u, codes) << 1;
  const u32 high = look_up(Compute::E2M1_HIGH, magnitude) | (sign & 0x80808080u);
  const u32 low = look_up(Compute::E2M1_LOW, magnitude);
  first = prmt(low, high, 0x5140u);   // bytes low 0, high 0, low 1, high 1
  second = prmt(low, high, 0x7362u);  // bytes low 2, high 2, low 3, high 3
}

// Eight codes to eight values, in pairs along k.
__device__ __forceinline__ void e2m1x8(u32 codes, u32 (&values)[4]) {
  e2m1x4(codes, values[0], values[1]);
  e2m1x4(codes >> 16, values[2], values[3]);
}

// The same times their scale, a pair of equal values.
__device__ __forceinline__ void e2m1x8(u32 codes, u32 scale, u32 (&values)[4]) {
  e2m1x8(codes, values);
#pragma unroll
  for (u32& pair : values) pair = Compute::mul(pair, scale);
}

// A block scale as a pair of equal 16-bit values. NaN stays NaN, so that a broken scale shows in the result.
__device__ __forceinline__ u32 e4m3_pair(u32 code) {
  const u32 magnitude = code & 0x7Fu, sign = (code & 0x80u) << 8;
  const u32 bits = (magnitude == 0x7Fu ? 0x7FFFu : magnitude << Compute::E4M3_SHIFT) | sign;
  return Compute::mul(bits | bits << 16, Compute::E4M3_REBIAS);
}

// The same of a power of two of MXFP4: an exponent as f32 has it, but for what 0 and 255 mean there. 2^-127 and NaN have the
// top bit of the mantissa.
__device__ __forceinline__ u32 e8m0_pair(u32 code) {
  const u32 mantissa = code == 0 || code == 0xFFu ? 1u << 22 : 0u;
  return Compute::pair_of_f32(code << 23 | mantissa);
}

}  // namespace ws
