// Where the two scales of a row and a K block are, in operands [groups, n, k/32].
#pragma once

namespace ws {

__device__ __forceinline__ u64 scale_offset(u32 n, u32 k, u32 group, u32 row, u32 k_block) {
  return (static_cast<u64>(group) * n + row) * (k / 32) + k_block * 2;
}

}  // namespace ws
