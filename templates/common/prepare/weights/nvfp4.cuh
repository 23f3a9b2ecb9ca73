// Block scales of NVFP4 weights: e4m3, four for 64 elements.
#pragma once

namespace ws {

// Those of 64 elements of a row, a byte for each of four steps.
struct Scales {
  u32 bytes;

  __device__ void load(const u8* from) { bytes = *reinterpret_cast<const u32*>(from); }

  __device__ u32 of(int step) const { return bytes >> (8 * step) & 0xFFu; }

  // Codes of a step as they are stored under its scale: negated for a negative one, 0 for zero.
  __device__ u32 settle(u32 codes, int step) const {
    const u32 scale = of(step);
    const u32 negated = (scale & 0x80u) != 0 ? codes ^ 0x88888888u : codes;
    return (scale & 0x7Fu) != 0 ? negated : 0u;
  }
};

}  // namespace ws
