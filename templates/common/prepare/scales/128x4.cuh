// Where the four scales of a row and a K block are, in atoms of 128 rows × 4 scales (see scales/128x4.cuh), each group
// padded to whole atoms.
#pragma once

namespace ws {

__device__ __forceinline__ u64 scale_offset(u32 n, u32 k, u32 group, u32 row, u32 k_block) {
  const u64 row_of_atoms = static_cast<u64>(group) * ((n - 1) / 128 + 1) + row / 128;
  return (row_of_atoms * (k / 64) + k_block) * 512 + (row % 32) * 16 + row % 128 / 32 * 4;
}

}  // namespace ws
