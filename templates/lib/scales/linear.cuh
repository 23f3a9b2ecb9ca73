// Block scales [rows, K/16], row-major.
#pragma once

namespace ws {

constexpr long long SCALE_BYTES_PER_GROUP = static_cast<long long>(N) * (K / 16);

// Where the four scales of K block `k_block` of a row are.
__device__ __forceinline__ long long scale_offset(int row, int k_block) {
  return static_cast<long long>(row) * (K / 16) + k_block * 4;
}

}  // namespace ws
