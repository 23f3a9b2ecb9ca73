// Prepared weights → e4m3 (the layout: src/format/prepared.rs), seven operations for eight codes and a table of eight
// magnitudes for sixteen.
//
// A code under a scale is one of eight magnitudes, 0, ½, 1, 1½, 2, 3, 4, 6 times the scale, each rounded to e4m3. prmt looks
// them up. Conversions to e4m3 run at a quarter of the rate, so the eight are not converted. Where the scale is so large that
// none of them is subnormal, they are a sum: with s the scale's byte and r that of 1½ times it,
//
//   low  = { 0, s - 8, s, r }        high = { s + 8, r + 8, s + 16, r + 16 }        r - s depends on the mantissa alone
//
// and so an entry for each of eight mantissas, which hold no s, is enough. Any other scale's byte is negative and has an
// entry of its own, from which what is added for it has been taken away before.
#pragma once

namespace ws {

struct Decode {
  // Entries of the bytes -SMALL … -1, then of the mantissas.
  static constexpr int SMALL = 58, MANTISSAS = 8;

  // The eight magnitudes of a scale.
  struct Magnitudes {
    u32 low, high;
  };

  // The entry of byte or mantissa 0, in shared memory.
  __device__ static u32 table(u32 base) { return base + DECODE_OFFSET + 8 * SMALL; }

  // Of a scale's byte, as a signed number: -1 is zero, -2 is NaN, from -3 on there are the smallest scales, eight for each power of two
  // from 2^-12 on.
  __device__ static Magnitudes of_byte(int byte) {
    if (byte == -2) return {0x7F7F7F7Fu, 0x7F7F7F7Fu};
    const u32 bits = byte >= 0 ? (120u << 3) + byte : ((127u - 12) << 3) - byte - 3;
    const float scale = byte == -1 ? 0.f : __uint_as_float(bits << 20);
    return {cvt_e4m3x2(0.f, 0.5f * scale) | cvt_e4m3x2(scale, 1.5f * scale) << 16,
            cvt_e4m3x2(2.f * scale, 3.f * scale) | cvt_e4m3x2(4.f * scale, 6.f * scale) << 16};
  }

  // By all threads, before they meet.
  __device__ static void make_table(u32 base) {
    const int index = static_cast<int>(threadIdx.x) - SMALL;
    if (index >= MANTISSAS) return;
    // Any byte with this mantissa whose magnitudes are normal numbers; of small scales the byte is the index.
    const int byte = index < 0 ? index : 64 + index;
    const Magnitudes of = of_byte(byte);
    st_shared_8(table(base) + 8 * index, of.low - byte * 0x01010100u, of.high - byte * 0x01010101u);
  }

  // The same, by the table.
  __device__ __forceinline__ static Magnitudes magnitudes(u32 table, int byte) {
    const uint2 entry = ld_shared_8(table + 8 * min(byte, byte & 7));
    return {entry.x + byte * 0x01010100u, entry.y + byte * 0x01010101u};
  }

  // A word of eight codes: the first four and the others.
  __device__ __forceinline__ static void codes(u32 word, const Magnitudes& of, u32& first, u32& second) {
    const u32 which = word & 0x77777777u;
    first = prmt(of.low, of.high, which) | (word & 0x80808080u);
    second = prmt(of.low, of.high, which >> 16) | (word << 4 & 0x80808080u);
  }
};

}  // namespace ws
