// Block scales in 512-byte atoms of 128 rows × 4 scales (common/scales/128x4.cuh); a row has a multiple of 4.
#pragma once

namespace ws {

// Rows that scales are kept for: whole atoms.
__device__ __forceinline__ u32 rows_with_scales(u32 rows) { return (rows + 127) / 128 * 128; }

// Where the scale of a block of a row is, of so many blocks.
template <class Number>
__device__ __forceinline__ Number block_scale_offset(Number blocks, Number row, Number block) {
  return (row / 128 * (blocks / 4) + block / 4) * 512 + row % 32 * 16 + row % 128 / 32 * 4 + block % 4;
}

}  // namespace ws
