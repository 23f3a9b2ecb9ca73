// Where the four scales of a row and a K block are, in operands [groups, n, k/16].
#pragma once

namespace ws {

__device__ __forceinline__ u64 scale_offset(u32 n, u32 k, u32 group, u32 row, u32 k_block) {
  return (static_cast<u64>(group) * n + row) * (k / 16) + k_block * 4;
}

}  // namespace ws
