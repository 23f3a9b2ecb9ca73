// What both launches take.
#pragma once

namespace ws {

// The same order and sizes as `Params` on the host side (src/run/quantise.rs).
struct QuantiseParams {
  const u8* x;         // [m, K]
  u8* codes;           // [m, K / 2]
  u8* scales;          // [m, K / 16], or in the 128x4 layout
  const float* given;  // the factor, or none
  float* own;          // the factor and, behind it, MAXIMA words: the largest magnitudes that blocks found, as bits
  float factor;        // where `given` is none
  u32 blocks;          // m * K / 16
};

inline constexpr int MAXIMA = 512;

}  // namespace ws
