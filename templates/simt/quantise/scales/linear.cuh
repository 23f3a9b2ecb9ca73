// Block scales [rows, blocks], row-major.
#pragma once

namespace ws {

// Rows that scales are kept for.
__device__ __forceinline__ u32 rows_with_scales(u32 rows) { return rows; }

__device__ __forceinline__ u32 scale_offset(u32 blocks, u32 row, u32 block) { return row * blocks + block; }

}  // namespace ws
