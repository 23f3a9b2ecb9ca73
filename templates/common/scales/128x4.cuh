// Block scales in 512-byte atoms of 128 rows × 4 scales (cuBLASLt, "1D block scaling factors layout"): atoms in row-major
// order, inside an atom row r at 16·(r mod 32) + 4·(r div 32). The four scales of a K block lie together. Padding rows
// are never read: rows of a tile past the operand's end are zeros.
#pragma once

namespace ws {

inline constexpr long long SCALE_BYTES_PER_GROUP = static_cast<long long>(ceil_div(N, 128)) * (K / 64) * 512;

// Where a tile that begins with row `first` finds its first row of atoms, and which row of those `first` is.
__device__ __forceinline__ long long scale_begin(int first) {
  return static_cast<long long>(first / 128) * (K / 64) * 512;
}
__device__ __forceinline__ int scale_row(int first) { return first % 128; }

// Bytes of the scales of so many rows.
__device__ __forceinline__ long long scale_bytes(int rows) { return scale_begin(ceil_div(rows, 128) * 128); }

// From there to the four scales of K block `k_block` of a row.
__device__ __forceinline__ int scale_offset(int row, int k_block) {
  const int atom = row / 128 * (K / 64) + k_block;
  return atom * 512 + (row % 32) * 16 + (row % 128) / 32 * 4;
}

}  // namespace ws
