// Weights as they are given to the kernels that prepare them, and the part of a row that a thread takes.
#pragma once

namespace ws {

// The same order and sizes as `Params` on the host side (src/run/prepare.rs).
struct PrepareParams {
  const u8* codes[2];   // of B, or of B1 and B2
  const u8* scales[2];  // their block scales
  u8* prepared;
  u32 n, k, groups;
};

// 64 elements of a row, eight bytes of codes for each of four steps.
struct Segment {
  uint4 codes[2];
  Scales scales;

  // Rows from n on are zeros.
  __device__ Segment(const PrepareParams& params, int product, u32 group, u32 row, u32 k_block) : codes{}, scales{} {
    if (row >= params.n) return;
    const u64 from = (static_cast<u64>(group) * params.n + row) * (params.k / 2) + k_block * 32;
    codes[0] = *reinterpret_cast<const uint4*>(params.codes[product] + from);
    codes[1] = *reinterpret_cast<const uint4*>(params.codes[product] + from + 16);
    scales.load(params.scales[product] + scale_offset(params.n, params.k, group, row, k_block));
  }

  // Bytes c and c + 4 of a step's eight, in bytes 0 and 1; the others mean nothing.
  __device__ u32 pairs(int step, u32 c) const {
    const uint4& both = codes[step / 2];
    const u32 selector = c | (c + 4) << 4;
    return step % 2 == 0 ? prmt(both.x, both.y, selector) : prmt(both.z, both.w, selector);
  }

  // The same as they are stored.
  __device__ u32 settled(int step, u32 c) const { return scales.settle(pairs(step, c), step); }
};

}  // namespace ws
