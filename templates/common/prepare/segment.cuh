// NVFP4 weights as they are given to the kernels that prepare them, and the part of a row that a thread takes.
#pragma once

namespace ws {

// The same order and sizes as `Params` on the host side (src/run/prepare.rs).
struct PrepareParams {
  const u8* codes[2];   // of B, or of B1 and B2
  const u8* scales[2];  // their block scales
  u8* prepared;
  u32 n, k, groups;
};

// 64 elements of a row, eight bytes of codes and a byte of scale for each of four steps.
struct Segment {
  uint4 codes[2];
  u32 scales;

  // Rows from n on are zeros.
  __device__ Segment(const PrepareParams& params, int product, u32 group, u32 row, u32 k_block) : codes{}, scales(0) {
    if (row >= params.n) return;
    const u64 from = (static_cast<u64>(group) * params.n + row) * (params.k / 2) + k_block * 32;
    codes[0] = *reinterpret_cast<const uint4*>(params.codes[product] + from);
    codes[1] = *reinterpret_cast<const uint4*>(params.codes[product] + from + 16);
    const u64 scale = scale_offset(params.n, params.k, group, row, k_block);
    scales = *reinterpret_cast<const u32*>(params.scales[product] + scale);
  }

  // Bytes c and c + 4 of a step's eight, in bytes 0 and 1; the others mean nothing.
  __device__ u32 pairs(int step, u32 c) const {
    const uint4& both = codes[step / 2];
    const u32 selector = c | (c + 4) << 4;
    return step % 2 == 0 ? prmt(both.x, both.y, selector) : prmt(both.z, both.w, selector);
  }

  __device__ u32 scale(int step) const { return scales >> (8 * step) & 0xFFu; }
};

// Codes as they are stored under a scale: negated for a negative one, 0 for zero.
__device__ __forceinline__ u32 settle(u32 codes, u32 scale) {
  const u32 negated = (scale & 0x80u) != 0 ? codes ^ 0x88888888u : codes;
  return (scale & 0x7Fu) != 0 ? negated : 0u;
}

}  // namespace ws
