// Block scales [rows, K/16], row-major.
#pragma once

namespace ws {

inline constexpr long long SCALE_BYTES_PER_GROUP = static_cast<long long>(N) * (K / 16);

// Where a tile that begins with row `first` finds its scales, and which row of those `first` is.
__device__ __forceinline__ long long scale_begin(int first) { return static_cast<long long>(first) * (K / 16); }
__device__ __forceinline__ int scale_row(int) { return 0; }

// Bytes of the scales of so many rows.
__device__ __forceinline__ long long scale_bytes(int rows) { return scale_begin(rows); }

// From there to the four scales of K block `k_block` of a row.
__device__ __forceinline__ int scale_offset(int row, int k_block) { return row * (K / 16) + k_block * 4; }

}  // namespace ws
