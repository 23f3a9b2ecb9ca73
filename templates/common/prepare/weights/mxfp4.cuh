// Block scales of MXFP4 weights: e8m0, two for 64 elements.
#pragma once

namespace ws {

// Those of 64 elements of a row, a byte for two steps each.
struct Scales {
  u32 bytes;

  __device__ void load(const u8* from) { bytes = *reinterpret_cast<const u16*>(from); }

  __device__ u32 of(int half) const { return bytes >> (8 * half) & 0xFFu; }

  // Codes of a step as they are stored under its scale: 0 for NaN, which kernels take for infinity, and 0 times that is NaN.
  __device__ u32 settle(u32 codes, int step) const { return of(step / 2) == 0xFFu ? 0u : codes; }
};

}  // namespace ws
