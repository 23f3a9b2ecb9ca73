// 64 of K, of weights that become e4m3: two steps of 32.
#pragma once

namespace ws {

// A K block that is loaded.
template <class Rows>
__device__ __forceinline__ void decode_block(const Rows& rows, u32 (&a)[2][4]) {
  rows.decode(a[0], 0);
  rows.decode(a[1], 1);
}

}  // namespace ws
