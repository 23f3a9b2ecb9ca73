// Block scales [rows, blocks], row-major.
#pragma once

namespace ws {

// Rows that scales are kept for.
__device__ __forceinline__ u32 rows_with_scales(u32 rows) { return rows; }

// Where the scale of a block of a row is, of so many blocks.
template <class Number>
__device__ __forceinline__ Number block_scale_offset(Number blocks, Number row, Number block) {
  return row * blocks + block;
}

}  // namespace ws
